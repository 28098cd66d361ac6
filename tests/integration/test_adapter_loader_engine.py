"""The loader process beside a real engine: adapters that the learner wrote, proved over HTTP."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage import LocalStore
from support.servers import find_port
from support.tiny_model import make_model
from support.versions import KEY, NAME, REPLICA, RUN, SPEC, Writer, engine, loader
from support.vllm import API_KEY as VLLM_KEY
from support.vllm import vllm_server


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
    log = (tmp_path / f"loader-{REPLICA}.log").read_text()
    assert "Traceback" not in log
    assert '"event": "version_withheld"' in log


@pytest.mark.vllm
async def test_vllm(writer: Writer, ledger: Ledger, redis_url: str, tmp_path: Path) -> None:
    with vllm_server(tmp_path / "model", NAME, tmp_path) as url, loader(url, VLLM_KEY, redis_url, tmp_path):
        await check_all(ledger, writer)
