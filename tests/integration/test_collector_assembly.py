"""From spans to a trajectory, once: real Redis, real files, several collectors in one process."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from leyden_collector.admission import Share
from leyden_collector.assembler import Assembler
from leyden_collector.cache import SegmentCache
from leyden_collector.metrics import TRAJECTORIES
from leyden_collector.pace import Pace
from leyden_collector.reader import SegmentReader
from leyden_collector.segments import Limits, SegmentWriter
from leyden_contracts import AttemptResult, EpisodeState, FailureReason, RunSpec, Transition
from leyden_ledger import Ledger
from leyden_storage import LocalStore, StoreError
from leyden_storage.keys import trajectories_prefix
from leyden_storage.trajectories import read_trajectory, write_trajectory
from support.episodes import Planned, accept
from support.spans import call_span, request, transition

RUN, GROUP = "run-a", "g-0"
LEASE_S = 0.1


class Collector:
    """The collector's parts, without HTTP."""

    def __init__(self, store: LocalStore, ledger: Ledger) -> None:
        cache = SegmentCache(2**20)
        pace = Pace(0.01, 0)
        limits = Limits(flush_s=0.002, max_bytes=2**20, writers=2, timeout_s=5)
        self._writer = SegmentWriter(store, ledger.assembly, cache, limits, pace.touch)
        reader = SegmentReader(store, cache)
        self.assembler = Assembler(store, ledger, reader, pace, lease_s=LEASE_S, width=4)

    async def receive(self, *calls: Transition) -> None:
        message = request(*map(call_span, calls)).SerializeToString()
        await self._writer.submit(Share(RUN, len(calls), message, list(calls)))


@pytest.fixture
def collector(store: LocalStore, ledger: Ledger) -> Collector:
    return Collector(store, ledger)


async def running(ledger: Ledger, episodes: int = 1, calls: int = 3) -> list[str]:
    """Start the first attempt of each episode, and count its calls."""
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c"}
    await ledger.runs.create(RunSpec.model_validate(spec))
    await accept(ledger, RUN, [Planned(GROUP, size=episodes)])
    await ledger.episodes.release(RUN)
    ids = [f"{GROUP}.{index}" for index in range(episodes)]
    for episode in ids:
        assert await ledger.episodes.claim(RUN, episode, "w", 60)
        for _ in range(calls):
            await ledger.calls.count(RUN, episode, 1)
    return ids


async def close(ledger: Ledger, *episodes: str) -> None:
    for index, episode in enumerate(episodes):
        result = AttemptResult(outcome="graded", reward=index / 3, rewards={"reward": index / 3})
        assert await ledger.episodes.close(RUN, episode, 1, result)


async def state(ledger: Ledger, episode: str = f"{GROUP}.0") -> EpisodeState:
    return (await ledger.episodes.get(RUN, episode)).state


def calls_of(episode: str = f"{GROUP}.0", count: int = 3) -> list[Transition]:
    return [transition(number, episode=episode) for number in range(1, count + 1)]


async def test_a_closed_attempt_becomes_one_trajectory(collector: Collector, ledger: Ledger, store: LocalStore) -> None:
    first, second = await running(ledger, 2)
    await collector.receive(*calls_of(first), *calls_of(second))
    assert not await collector.assembler.once()
    await close(ledger, first, second)
    assert await collector.assembler.once()
    assert [await state(ledger, episode) for episode in (first, second)] == [EpisodeState.SUCCEEDED] * 2
    trajectory = read_trajectory(store, RUN, GROUP, second)
    assert trajectory.transitions == tuple(calls_of(second))
    assert (trajectory.reward, trajectory.rewards) == (1 / 3, {"reward": 1 / 3})
    assert [group.id for group in await ledger.training.finished_groups(RUN, 0, 10)] == [GROUP]


async def test_an_attempt_waits_for_its_last_span(collector: Collector, ledger: Ledger) -> None:
    (episode,) = await running(ledger)
    await close(ledger, episode)
    first, *others = calls_of()
    await collector.receive(*others)
    assert not await collector.assembler.once()
    await collector.receive(first)
    assert await collector.assembler.once()
    assert await state(ledger) is EpisodeState.SUCCEEDED


async def test_order_and_repetition_leave_no_mark(collector: Collector, ledger: Ledger, store: LocalStore) -> None:
    (episode,) = await running(ledger)
    first, second, third = calls_of()
    for calls in ([third, third], [first, third], [second], [first, second, third]):
        await collector.receive(*calls)
    await close(ledger, episode)
    await collector.assembler.once()
    assert read_trajectory(store, RUN, GROUP, episode).transitions == (first, second, third)


async def test_an_attempt_without_calls_is_assembled(collector: Collector, ledger: Ledger, store: LocalStore) -> None:
    (episode,) = await running(ledger, calls=0)
    await close(ledger, episode)
    await collector.assembler.once()
    assert read_trajectory(store, RUN, GROUP, episode).transitions == ()
    assert await state(ledger) is EpisodeState.SUCCEEDED


async def test_spans_of_a_fenced_attempt_change_nothing(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    failed = AttemptResult(outcome="failed", reason=FailureReason.AGENT_ERROR)
    assert await ledger.episodes.close(RUN, episode, 1, failed)
    await collector.receive(*calls_of())
    await collector.receive(transition(1, episode="nobody.0"))
    assert not await collector.assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert list(store.list(trajectories_prefix(RUN))) == []


async def test_a_collector_that_never_saw_the_spans_assembles_them(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    for call in calls_of():
        await collector.receive(call)
    await close(ledger, episode)
    assert await Collector(store, ledger).assembler.once()
    assert read_trajectory(store, RUN, GROUP, episode).transitions == tuple(calls_of())


async def test_racing_collectors_write_each_trajectory_once(
    ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = count_creates(store, monkeypatch)
    episodes = await running(ledger, 8)
    collectors = [Collector(store, ledger) for _ in range(3)]
    for index, episode in enumerate(episodes):
        await collectors[index % 3].receive(*calls_of(episode))
    # Leases that have always run out: all collectors assemble all attempts.
    for collector in collectors:
        collector.assembler._lease_s = 0
    await close(ledger, *episodes)
    for _ in range(3):
        await asyncio.gather(*(collector.assembler.once() for collector in collectors))
    assert {await state(ledger, episode) for episode in episodes} == {EpisodeState.SUCCEEDED}
    assert sorted(written) == sorted(store.list(trajectories_prefix(RUN)))
    assert len(written) == 8
    assert (await ledger.runs.summary(RUN)).counts["train:succeeded"] == 8


def count_creates(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the key of each trajectory that is created."""
    written: list[str] = []
    create = store.create

    def counted(key: str, data: bytes) -> bool:
        made = create(key, data)
        if made and key.endswith(".parquet"):
            written.append(key)
        return made

    monkeypatch.setattr(store, "create", counted)
    return written


async def test_a_collector_that_died_before_settling_is_replaced(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    (closed,) = await ledger.assembly.due(RUN, LEASE_S)
    write_trajectory(store, await collector.assembler._build(closed))
    other = Collector(store, ledger)
    assert not await other.assembler.once(), "leased to the one that died"
    await asyncio.sleep(LEASE_S + 0.02)
    assert await other.assembler.once()
    assert await state(ledger) is EpisodeState.SUCCEEDED


def postponed() -> float:
    return TRAJECTORIES.labels(outcome="retry")._value.get()


async def test_a_store_that_is_away_only_postpones(
    collector: Collector, ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)

    def away(key: str, data: bytes) -> bool:
        raise StoreError("away")

    before = postponed()
    with monkeypatch.context() as patch:
        patch.setattr(store, "create", away)
        await collector.assembler.once()
    assert postponed() == before + 1
    assert await state(ledger) is EpisodeState.COLLECTING
    await asyncio.sleep(LEASE_S + 0.02)
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.SUCCEEDED


Damage = Callable[[LocalStore, Sequence[str]], None]


def lose(store: LocalStore, keys: Sequence[str]) -> None:
    for key in keys:
        store._path(key).unlink()


def garble(store: LocalStore, keys: Sequence[str]) -> None:
    for key in keys:
        store.put(key, b"\xff\xff")


@pytest.mark.parametrize("damage", [lose, garble])
async def test_lost_segments_make_the_attempt_incomplete(
    damage: Damage, collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    damage(store, list(store.list(f"runs/{RUN}/segments/")))
    await Collector(store, ledger).assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert (await ledger.episodes.get(RUN, episode)).reason is FailureReason.INCOMPLETE_TRACE
    assert list(store.list(trajectories_prefix(RUN))) == []


async def test_spans_that_contradict_each_other_make_the_attempt_incomplete(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger, calls=1)
    await collector.receive(transition(1), transition(1, response_id="another"))
    await close(ledger, episode)
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert list(store.list(trajectories_prefix(RUN))) == []


async def test_a_different_stored_trajectory_is_never_taken_for_this_one(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    (closed,) = await ledger.assembly.due(RUN, 0)
    other = (await collector.assembler._build(closed)).model_copy(update={"reward": 1.0})
    write_trajectory(store, other)
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert read_trajectory(store, RUN, GROUP, episode) == other
