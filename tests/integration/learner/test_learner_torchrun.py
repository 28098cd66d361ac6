"""The learner as torchrun starts it: one service of two processes (gloo, on the CPU)."""

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load

from leyden_learner.checkpoint import committed, read_files
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_learner.trainer import ADAPTER
from leyden_ledger import Ledger, RunState
from leyden_storage import LocalStore
from support.learning import RUN, make_spec
from support.playing import accept, play

GROUPS = ["a", "b", "c"]
REWARDS = (1, 0, 0, 1)


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    # Needs more of the others than a step's own passes: theirs for the leader's probes, too.
    return environment | {"LEYDEN_LEARNER_SHARDING": "fsdp2"}


@contextmanager
def torchrun(environment: dict[str, str], log: Path, *options: str) -> Iterator[psutil.Popen]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    with log.open("ab") as output:
        child = psutil.Popen(
            [*launcher, "-m", "leyden_learner"], env=os.environ | environment, stdout=output, stderr=output
        )
    try:
        yield child
    finally:
        for one in [*children(child), child]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        child.wait()


def children(child: psutil.Popen) -> list[psutil.Process]:
    try:
        return child.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def of_rank(child: psutil.Popen, rank: int) -> psutil.Process:
    (found,) = [one for one in children(child) if one.environ().get("RANK") == str(rank)]
    return found


async def until(ready: Callable[[], Awaitable[bool]], child: psutil.Popen, log: Path) -> None:
    async with asyncio.timeout(240):
        while not await ready():
            assert child.poll() is None, log.read_text()
            await asyncio.sleep(0.1)


def published(ledger: Ledger, version: int) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return (await ledger.runs.summary(RUN)).version_published >= version

    return ready


def finished(ledger: Ledger) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return (await ledger.runs.summary(RUN)).state is RunState.FINISHED

    return ready


async def played_run(ledger: Ledger, store: LocalStore, played: int = len(GROUPS)) -> None:
    spec = make_spec(groups_per_step=1, max_staleness=1000, micro_batch_tokens=64, learning_rate=1e-3)
    await accept(ledger, spec, GROUPS)
    for group in GROUPS[:played]:
        await play(ledger, store, group, REWARDS)


async def trained_alone(ledger: Ledger, store: LocalStore, tiny_llama: Path) -> None:
    """Train the rest of the run in this process."""
    around = Surroundings(ledger, store, {"tiny": tiny_llama}, "cpu")
    training = await RunTraining.resume(around, RUN)
    while await training.advance() is Progress.TRAINED:
        pass


def weights(store: LocalStore, version: int) -> dict[str, torch.Tensor]:
    return load(read_files(store, committed(store, RUN, "policy")[version - 1])[ADAPTER])


def logged(log: Path, event: str) -> list[dict]:
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return [one for one in map(json.loads, lines) if one["event"] == event]


@pytest.mark.timeout(600)
async def test_two_processes_are_one_learner_that_begins_again_when_one_is_killed(
    ledger: Ledger, store: LocalStore, environment: dict[str, str], tmp_path: Path, tiny_llama: Path
):
    log, alone = tmp_path / "log", LocalStore(tmp_path / "alone")
    await played_run(ledger, store, played=1)
    with torchrun(environment, log, "--max-restarts", "1") as child:
        await until(published(ledger, 1), child, log)
        of_rank(child, 1).send_signal(signal.SIGKILL)
        # A run that waits for its groups is one that the processes wait for, too.
        for group in GROUPS[1:]:
            await play(ledger, store, group, REWARDS)
        await ledger.runs.seal(RUN)
        await until(finished(ledger), child, log)
        with urllib.request.urlopen(f"http://127.0.0.1:{environment['LEYDEN_LEARNER_PORT']}/metrics") as answer:
            assert f'leyden_learner_version{{run="{RUN}"}} 3.0' in answer.read().decode()
        child.terminate()
        child.wait(240)

    assert (await ledger.runs.summary(RUN)).version_published == 3
    assert [one.groups for one in committed(store, RUN, "policy")] == [["a"], ["b"], ["c"]]
    assert len(logged(log, "following")) == 2
    assert logged(log, "stopped")[-1]["rank"] == 1
    await ledger.redis.flushdb()
    await played_run(ledger, alone)
    await trained_alone(ledger, alone, tiny_llama)
    found, expected = weights(store, 3), weights(alone, 3)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, atol=1e-6, rtol=0), name
