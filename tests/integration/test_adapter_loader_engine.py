"""The loader process beside a real engine: adapters that the learner wrote, proved over HTTP."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from accelerate import Accelerator
from safetensors.torch import save

from leyden_contracts import AdapterManifest, LoraShape, Probe, RunSpec, adapter_name
from leyden_learner import checkpoint
from leyden_learner.policy import Policy
from leyden_learner.probes import first_probes, next_probes
from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage import LocalStore
from support.servers import find_port, process, wait_for
from support.tiny_model import make_model
from support.vllm import API_KEY as VLLM_KEY
from support.vllm import vllm_server

RUN, NAME, KEY, REPLICA = "run-proof", "tiny-base", "engine-test-key", "replica-0"
SPEC = RunSpec(id=RUN, base_model=NAME, agent="a:b", grader="a:c")
PROMPTS = [list(range(10, 74)), [7, 3, 200, 41, 5, 5, 90, 12] * 4, list(range(250, 150, -1))]


class Writer:
    """Writes versions as the learner does, with weights of the test's choice."""

    def __init__(self, model: Path, ledger: Ledger, store: LocalStore) -> None:
        self._policy = Policy(model, NAME, LoraShape(rank=4, alpha=8), 0, Accelerator(cpu=True))
        self._ledger, self._store = ledger, store
        self._probes: list[Probe] = first_probes(self._policy, PROMPTS)
        self._version = 0

    async def publish(self, step: float, lie: bool = False) -> str:
        """Move the weights by `step`, publish, return the name. With `lie`, the files stay the old ones."""
        files = self._files()
        with torch.no_grad():
            torch.manual_seed(self._version)
            for weight in self._policy.parameters.values():
                weight += step * torch.randn_like(weight)
        files = files if lie else self._files()
        self._probes = next_probes(self._policy, self._probes)
        self._version += 1
        manifest = AdapterManifest(
            run=RUN,
            role="policy",
            version=self._version,
            parent=self._version - 1,
            files=checkpoint.digests(files),
            groups=[],
            trained_episodes=[],
            skipped={},
            probes=self._probes,
            metrics={},
            config={},
            created=time.time(),
        )
        checkpoint.commit(self._store, manifest, files)
        await self._ledger.training.publish(RUN, self._version)
        return adapter_name(RUN, "policy", self._version)

    def _files(self) -> dict[str, bytes]:
        tensors = {name: weight.contiguous() for name, weight in self._policy.adapter_state().items()}
        return {
            "adapter_model.safetensors": save(tensors, metadata={"format": "pt"}),
            "adapter_config.json": self._policy.adapter_config(),
        }


@contextmanager
def engine(model: Path, port: int, folder: Path) -> Iterator[subprocess.Popen]:
    """Serve `model` with the embedded engine."""
    own = {"PORT": str(port), "API_KEY": KEY, "MODEL": str(model), "SERVED_NAME": NAME}
    environment = os.environ | {f"LEYDEN_ENGINE_{name}": value for name, value in own.items()}
    with process([sys.executable, "-m", "leyden_engine"], folder / "engine.log", env=environment) as child:
        wait_for(lambda: _answers(f"http://127.0.0.1:{port}/health"), 120, "the engine")
        yield child


@contextmanager
def loader(replica_url: str, key: str, redis_url: str, folder: Path) -> Iterator[subprocess.Popen]:
    """Run a loader process beside a replica."""
    port = find_port()
    own = {"PORT": str(port), "REPLICA_URL": replica_url, "REPLICA_ID": REPLICA, "BASE_MODEL": NAME}
    own |= {"CACHE_DIR": str(folder / "adapters"), "RETIRE_GRACE_S": "0.5"}
    shared = {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{folder / 'store'}",
        "LEYDEN_ENGINE_API_KEY": key,
    }
    environment = os.environ | shared | {f"LEYDEN_ADAPTER_LOADER_{name}": value for name, value in own.items()}
    with process([sys.executable, "-m", "leyden_adapter_loader"], folder / "loader.log", env=environment) as child:
        wait_for(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), 60, "the loader")
        yield child


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


async def status(ledger: Ledger) -> ReplicaStatus:
    found = await ledger.replicas.list()
    return found[0] if found else ReplicaStatus(id="none", url="", base_model="")


async def comes_ready(ledger: Ledger, *names: str, seconds: float = 30) -> float:
    """Wait until exactly these adapters are offered; returns how long it took."""
    begin = time.monotonic()
    while (now := await status(ledger)).id != REPLICA or now.ready != sorted(names):
        assert time.monotonic() < begin + seconds, f"it did not come: {now}"
        assert not now.rejected.keys() & set(names), now.rejected
        await asyncio.sleep(0.002)
    return time.monotonic() - begin


async def check_all(ledger: Ledger, writer: Writer) -> None:
    """Publish good, equal, small and lying versions, and look at what becomes of each."""
    first = await writer.publish(0.05)
    took = {first: await comes_ready(ledger, first)}
    equal = await writer.publish(0.0)
    took[equal] = await comes_ready(ledger, equal)
    small = await writer.publish(1e-4)
    took[small] = await comes_ready(ledger, small)
    print("from publish to ready:", {name: round(seconds, 3) for name, seconds in took.items()})
    liar = await writer.publish(3e-3, lie=True)
    end = time.monotonic() + 10
    while liar not in (now := await status(ledger)).rejected:
        assert liar not in now.ready and time.monotonic() < end
        await asyncio.sleep(0.01)
    assert "parent (0)" in now.rejected[liar]
    assert (await ledger.runs.summary(RUN)).version_ready == 3


@pytest_asyncio.fixture
async def writer(ledger: Ledger, store: LocalStore, tmp_path: Path) -> AsyncIterator[Writer]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    await ledger.runs.create(SPEC)
    yield Writer(make_model(tmp_path / "model", hidden=128, context=512), ledger, store)
    torch.set_num_threads(threads)


async def test_the_embedded_engine(writer: Writer, ledger: Ledger, redis_url: str, tmp_path: Path) -> None:
    port = find_port()
    with loader(f"http://127.0.0.1:{port}", KEY, redis_url, tmp_path) as child:
        assert await ledger.replicas.list() == [], "the replica is not there yet"
        with engine(tmp_path / "model", port, tmp_path):
            await check_all(ledger, writer)
        await asyncio.sleep(0.5)
        assert await ledger.replicas.list() == []
        with engine(tmp_path / "model", port, tmp_path):
            honest = await writer.publish(0.05)
            await comes_ready(ledger, honest)
            child.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 20) == 0
        assert await ledger.replicas.list() == []
    log = (tmp_path / "loader.log").read_text()
    assert "Traceback" not in log
    assert '"event": "version_withheld"' in log


@pytest.mark.vllm
async def test_vllm(writer: Writer, ledger: Ledger, redis_url: str, tmp_path: Path) -> None:
    with vllm_server(tmp_path / "model", NAME, tmp_path) as url, loader(url, VLLM_KEY, redis_url, tmp_path):
        await check_all(ledger, writer)
