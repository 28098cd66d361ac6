"""Versions as the learner writes them, and the processes that bring them into service."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import save

from leyden_contracts import AdapterManifest, LoraShape, Probe, RunSpec, adapter_name
from leyden_learner import checkpoint
from leyden_learner.policy import Policy
from leyden_learner.probes import begin_probes, finish_probes
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from support.servers import find_port, process, wait_for
from support.worker import answers

RUN, NAME, KEY, REPLICA = "run-proof", "tiny-base", "engine-test-key", "replica-0"
SPEC = RunSpec(id=RUN, base_model=NAME, agent="a:b", grader="a:c")
STARTS = ([10, 11, 12], [7, 3, 200, 41], [250])
State = dict[str, torch.Tensor]


class Writer:
    """Writes versions as the learner does, with weights of the test's choice."""

    def __init__(self, model: Path, ledger: Ledger, store: LocalStore) -> None:
        self.policy = Policy(model, NAME, LoraShape(rank=4, alpha=8), 0, Accelerator(cpu=True))
        self._ledger, self._store = ledger, store
        self.probes: list[Probe] = []
        self._version = 0

    def policy_says(self, start: list[int], length: int = 24) -> list[int]:
        """Return what the present policy says after `start` when it is greedy: likely, as real calls are."""
        found = self.policy._peft.generate(
            input_ids=torch.tensor([start]), max_length=length, min_length=length, do_sample=False, pad_token_id=0
        )
        return found[0].tolist()

    def state(self) -> State:
        """Return a copy of the present weights."""
        return {name: weight.clone() for name, weight in self.policy.adapter_state().items()}

    async def publish(self, step: float, lie: bool = False) -> str:
        """Move the weights by `step`, publish, return the name. With `lie`, the files stay the old ones."""
        files = self._files()
        probes = begin_probes(self.policy, [self.policy_says(start) for start in STARTS])
        with torch.no_grad():
            torch.manual_seed(self._version)
            for weight in self.policy.parameters.values():
                weight += step * torch.randn_like(weight)
        files = files if lie else self._files()
        self.probes = finish_probes(self.policy, probes)
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
            probes=self.probes,
            metrics={},
            config={},
            created=time.time(),
        )
        checkpoint.commit(self._store, [(manifest, files)])
        await self._ledger.training.publish(RUN, self._version)
        return adapter_name(RUN, "policy", self._version)

    def _files(self) -> dict[str, bytes]:
        tensors = {name: weight.contiguous() for name, weight in self.policy.adapter_state().items()}
        return {
            "adapter_model.safetensors": save(tensors, metadata={"format": "pt"}),
            "adapter_config.json": self.policy.adapter_config(),
        }


@contextmanager
def engine(model: Path, port: int, folder: Path) -> Iterator[subprocess.Popen]:
    """Serve `model` with the embedded engine."""
    own = {"PORT": str(port), "API_KEY": KEY, "MODEL": str(model), "SERVED_NAME": NAME}
    environment = os.environ | {f"LEYDEN_ENGINE_{name}": value for name, value in own.items()}
    with process([sys.executable, "-m", "leyden_engine"], folder / f"engine-{port}.log", env=environment) as child:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), 120, "the engine")
        yield child


@contextmanager
def loader(replica_url: str, key: str, redis_url: str, folder: Path, name: str = REPLICA) -> Iterator[subprocess.Popen]:
    """Run a loader process beside a replica; the store is `folder`/store."""
    port = find_port()
    own = {"PORT": str(port), "REPLICA_URL": replica_url, "REPLICA_ID": name, "BASE_MODEL": NAME}
    own |= {"CACHE_DIR": str(folder / f"adapters-{name}"), "RETIRE_GRACE_S": "0.5"}
    shared = {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{folder / 'store'}",
        "LEYDEN_ENGINE_API_KEY": key,
    }
    environment = os.environ | shared | {f"LEYDEN_ADAPTER_LOADER_{name}": value for name, value in own.items()}
    with process(
        [sys.executable, "-m", "leyden_adapter_loader"], folder / f"loader-{name}.log", env=environment
    ) as child:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/healthz"), 60, "the loader")
        yield child
