"""The main loop: one run's trouble, and outages of what is outside."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leyden_learner import loop
from leyden_learner.checkpoint import committed
from leyden_learner.loop import Learner
from leyden_learner.run_training import Surroundings
from leyden_ledger import Ledger
from leyden_storage import LocalStore, StoreError
from support.learning import RUN, make_spec
from support.playing import accept, play

REWARDS = (1, 0, 0, 1)


@asynccontextmanager
async def learning(around: Surroundings, only: str | None = None) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(Learner(around, 0.02, only).run(stop))
    yield
    stop.set()
    await asyncio.wait_for(task, 30)


async def until(ready: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await ready():
            await asyncio.sleep(0.02)


def published(ledger: Ledger, version: int, run: str = RUN) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return (await ledger.runs.summary(run)).version_published >= version

    return ready


@pytest.fixture
def around(ledger: Ledger, store: LocalStore, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setattr(loop, "_LONGEST_PAUSE_S", 0.1)
    return Surroundings(ledger, store, {"tiny": tiny_llama}, "cpu")


async def test_a_run_with_trouble_is_tried_again_and_holds_up_no_other(around: Surroundings):
    spec = make_spec(groups_per_step=1)
    for one in (spec.model_copy(update={"id": "run-a"}), spec):
        await accept(around.ledger, one, "a")
        await play(around.ledger, around.store, "a", REWARDS, run=str(one.id))
    manifest = "runs/run-a/adapters/policy/v1/manifest.json"
    around.store.put(manifest, b"not a manifest")

    async with learning(around):
        await until(published(around.ledger, 1))
        around.store._path(manifest).unlink()
        await until(published(around.ledger, 1, "run-a"))


async def test_only_the_given_run_is_trained(around: Surroundings):
    spec = make_spec(groups_per_step=1)
    for one in (spec.model_copy(update={"id": "run-a"}), spec):
        await accept(around.ledger, one, "a")
        await play(around.ledger, around.store, "a", REWARDS, run=str(one.id))

    async with learning(around, only=RUN):
        await until(published(around.ledger, 1))

    assert committed(around.store, "run-a", "policy") == []


async def test_a_store_that_fails_in_the_middle_of_a_commit_costs_no_group(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
):
    await accept(around.ledger, make_spec(groups_per_step=1, max_staleness=1000), "ab")
    for group in "ab":
        await play(around.ledger, around.store, group, REWARDS)
    real, failures = around.store.put, iter([StoreError("down")] * 3)

    def put(key: str, data: bytes) -> None:
        if error := next(failures, None):
            raise error
        real(key, data)

    monkeypatch.setattr(around.store, "put", put)
    async with learning(around):
        await until(published(around.ledger, 2))

    manifests = committed(around.store, RUN, "policy")
    assert [manifest.groups for manifest in manifests] == [["a"], ["b"]]
    assert all(len(manifest.trained_episodes) == 4 for manifest in manifests)
