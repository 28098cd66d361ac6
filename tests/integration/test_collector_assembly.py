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
from leyden_contracts import AttemptResult, EpisodeState, FailureReason, RunSpec, Step, Trajectory, Transition
from leyden_ledger import Batch, Closed, Ledger, Refusal, SpanNote, assembly
from leyden_ledger.check import check_run
from leyden_ledger.store import ATTEMPTS_APART, key
from leyden_ledger.training import StoredEpisode
from leyden_storage import LocalStore, StoreError
from leyden_storage.keys import batch_name, trajectories_prefix
from leyden_storage.trajectories import encode_batch, stored_heads, stored_trajectories, write_batch
from support.episodes import Planned, accept
from support.spans import call_span, request, transition

RUN, GROUP = "run-a", "g-0"
LEASE_S = 60


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
        reward, output = index / 3, {"answer": index}
        result = AttemptResult(outcome="graded", reward=reward, rewards={"reward": reward}, output=output)
        assert await ledger.episodes.close(RUN, episode, 1, result)


def stored(store: LocalStore) -> dict[str, Trajectory]:
    """Return what is in the store, by episode; fail if anything is there twice."""
    found = list(stored_trajectories(store, RUN))
    assert len(found) == len({one.episode for one in found})
    return {one.episode: one for one in found}


async def built(collector: Collector, ledger: Ledger, lease_s: float = LEASE_S) -> tuple[Batch, list[Trajectory]]:
    """Lease a batch and build it, as a collector does that then dies, or sleeps."""
    batch = await ledger.assembly.due(RUN, lease_s)
    assert batch
    made = [await collector.assembler._build(closed) for closed in batch.members]
    return batch, [one for one in made if one]


async def lease_over(ledger: Ledger) -> None:
    """Let the time pass that collectors have for the batches they lease."""
    for number in await ledger.redis.zrange(key(RUN, "batches"), 0, -1):
        await ledger.redis.zadd(key(RUN, "batches"), {number: 0})


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
    assert len(list(store.list(trajectories_prefix(RUN)))) == 1
    trajectory = stored(store)[second]
    assert trajectory.transitions == tuple(calls_of(second))
    assert (trajectory.reward, trajectory.rewards) == (1 / 3, {"reward": 1 / 3})
    assert trajectory.output == {"answer": 1}
    assert (await ledger.episodes.get(RUN, second)).batch == batch_name(0, 1)
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
    assert stored(store)[episode].transitions == (first, second, third)


async def test_an_attempt_without_calls_is_assembled(collector: Collector, ledger: Ledger, store: LocalStore) -> None:
    (episode,) = await running(ledger, calls=0)
    await close(ledger, episode)
    await collector.assembler.once()
    assert stored(store)[episode].transitions == ()
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
    assert stored(store)[episode].transitions == tuple(calls_of())


async def test_racing_collectors_write_each_batch_once(
    ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = count_creates(store, monkeypatch)
    episodes = await running(ledger, 8)
    collectors = [Collector(store, ledger) for _ in range(3)]
    for index, episode in enumerate(episodes):
        await collectors[index % 3].receive(*calls_of(episode))
    # Leases that have always run out: all collectors assemble the same batch.
    for collector in collectors:
        collector.assembler._lease_s = 0
    for part in (episodes[:5], episodes[5:]):
        await close(ledger, *part)
        await asyncio.gather(*(collector.assembler.once() for collector in collectors))
    assert {await state(ledger, episode) for episode in episodes} == {EpisodeState.SUCCEEDED}
    assert sorted(written) == sorted(store.list(trajectories_prefix(RUN)))
    assert len(written) == 2
    assert {episode: one.transitions for episode, one in stored(store).items()} == {
        episode: tuple(calls_of(episode)) for episode in episodes
    }
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
    batch, trajectories = await built(collector, ledger)
    write_batch(store, RUN, batch.name, trajectories)
    other = Collector(store, ledger)
    assert not await other.assembler.once(), "leased to the one that died"
    await lease_over(ledger)
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
    await lease_over(ledger)
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.SUCCEEDED


Damage = Callable[[LocalStore, Sequence[str]], None]


def lose(store: LocalStore, keys: Sequence[str]) -> None:
    for name in keys:
        store._path(name).unlink()


def garble(store: LocalStore, keys: Sequence[str]) -> None:
    for name in keys:
        store.put(name, b"\xff\xff")


@pytest.mark.parametrize("damage", [lose, garble])
async def test_lost_segments_make_the_attempt_incomplete_and_no_other(
    damage: Damage, collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    lost, whole = await running(ledger, 2)
    await collector.receive(*calls_of(lost))
    damage(store, list(store.list(f"runs/{RUN}/segments/")))
    await collector.receive(*calls_of(whole))
    await close(ledger, lost, whole)
    await Collector(store, ledger).assembler.once()
    assert [await state(ledger, one) for one in (lost, whole)] == [EpisodeState.QUEUED, EpisodeState.SUCCEEDED]
    assert (await ledger.episodes.get(RUN, lost)).reason is FailureReason.INCOMPLETE_TRACE
    assert list(stored(store)) == [whole]


async def test_what_cannot_be_built_or_stored_does_not_hold_up_the_others(
    collector: Collector, ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, huge, whole = await running(ledger, 3, calls=1)
    await collector.receive(transition(1, episode=broken), transition(1, episode=whole))
    # More than the column takes: found when the batch is encoded.
    await collector.receive(transition(1, episode=huge, start_ns=2**63))
    await close(ledger, broken, huge, whole)
    find = collector.assembler._reader.transitions

    async def fails(closed: Closed) -> list[Transition]:
        if closed.episode == broken:
            raise RuntimeError("a bug")
        return await find(closed)

    monkeypatch.setattr(collector.assembler._reader, "transitions", fails)
    await collector.assembler.once()
    states = [await state(ledger, one) for one in (broken, huge, whole)]
    assert states == [EpisodeState.QUEUED, EpisodeState.QUEUED, EpisodeState.SUCCEEDED]
    assert list(stored(store)) == [whole]


async def test_spans_that_contradict_each_other_make_the_attempt_incomplete(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger, calls=1)
    await collector.receive(transition(1), transition(1, response_id="another"))
    await close(ledger, episode)
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert stored(store) == {}
    assert len(list(store.list(trajectories_prefix(RUN)))) == 1, "the empty batch keeps slower collectors out"


async def test_an_empty_batch_fences_a_collector_that_saw_more(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    """One finds the segment lost and refuses; another, which still has it in memory, wakes up after that."""
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    lose(store, list(store.list(f"runs/{RUN}/segments/")))
    batch, trajectories = await built(collector, ledger)
    assert [one.episode for one in trajectories] == [episode]
    await lease_over(ledger)
    assert await Collector(store, ledger).assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert await collector.assembler._assemble(batch) == {"conflict": 1}
    assert await state(ledger) is EpisodeState.QUEUED
    assert stored(store) == {}
    assert (await ledger.runs.summary(RUN)).failures == {"incomplete_trace": 1}


async def test_a_batch_is_handed_over_as_it_was(collector: Collector, ledger: Ledger, store: LocalStore) -> None:
    first, second = await running(ledger, 2)
    await collector.receive(*calls_of(first), *calls_of(second))
    await close(ledger, first)
    before, trajectories = await built(collector, ledger)
    await close(ledger, second)
    await lease_over(ledger)
    assert await ledger.assembly.due(RUN, LEASE_S) == before, "not with those that were closed since"
    other = await ledger.assembly.due(RUN, LEASE_S)
    assert other and [closed.episode for closed in other.members] == [second]
    assert await ledger.assembly.due(RUN, LEASE_S) is None
    await lease_over(ledger)
    (taken,) = await Collector(store, ledger).assembler.once()
    assert taken == before
    assert not write_batch(store, RUN, before.name, trajectories)
    assert store.get(f"{trajectories_prefix(RUN)}{before.name}.parquet") == encode_batch(trajectories)


async def test_a_batch_has_so_many_members_and_calls_at_most(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = await running(ledger, 5, calls=0)
    monkeypatch.setattr(assembly, "BATCH_MEMBERS", 2)
    await close(ledger, *episodes)
    batches = [await ledger.assembly.due(RUN, 60) for _ in range(4)]
    assert [len(batch.members) for batch in batches if batch] == [2, 2, 1]
    assert [batch.full for batch in batches if batch] == [True, True, False]


async def test_a_batch_takes_one_attempt_of_many_calls(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = await running(ledger, 3, calls=3)
    monkeypatch.setattr(assembly, "BATCH_CALLS", 4)
    await close(ledger, *episodes)
    notes = [SpanNote(episode, 1, call, "segment") for episode in episodes for call in (1, 2, 3)]
    await ledger.assembly.note_spans(RUN, notes)
    batches = [await ledger.assembly.due(RUN, 60) for _ in range(4)]
    assert [len(batch.members) for batch in batches if batch] == [1, 1, 1]


async def test_a_different_stored_trajectory_is_never_taken_for_this_one(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    batch, (trajectory,) = await built(collector, ledger, 0)
    other = trajectory.model_copy(update={"reward": 1.0})
    write_batch(store, RUN, batch.name, [other])
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.QUEUED
    assert stored(store) == {episode: other}


async def test_agents_spans_that_come_later_make_no_conflict(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    batch, (trajectory,) = await built(collector, ledger, 0)
    step = Step(kind="tool", name="search", span="0" * 16)
    write_batch(store, RUN, batch.name, [trajectory.model_copy(update={"steps": (step,)})])
    await collector.assembler.once()
    assert await state(ledger) is EpisodeState.SUCCEEDED


async def test_a_number_that_comes_again_goes_by_what_is_stored(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    """As if Redis had lost its last second: the batch was formed and stored before, with other members."""
    first, second, third = await running(ledger, 3)
    await collector.receive(*calls_of(first), *calls_of(second), *calls_of(third))
    await close(ledger, first, second)
    batch, trajectories = await built(collector, ledger)
    write_batch(store, RUN, batch.name, trajectories)
    await ledger.redis.hdel(key(RUN, "run"), "batches")
    await ledger.redis.delete(key(RUN, "batches"), key(RUN, "members"))
    await ledger.redis.zadd(key(RUN, "assembly"), {second: 0})
    await close(ledger, third)
    await collector.assembler.once()
    states = [await state(ledger, one) for one in (first, second, third)]
    assert states == [EpisodeState.SUCCEEDED, EpisodeState.SUCCEEDED, EpisodeState.QUEUED]
    assert sorted(stored(store)) == [first, second]


async def lose_ledger(ledger: Ledger, held: str | None = None) -> None:
    """Lose the ledger, and have it rebuilt with the run's tasks."""
    await ledger.redis.flushall()
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c"}
    await ledger.runs.create(RunSpec.model_validate(spec), ATTEMPTS_APART)
    await accept(ledger, RUN, [Planned(GROUP, size=1)])
    await ledger.runs.hold(RUN, held)


async def test_a_ledger_that_was_lost_meanwhile_gets_no_second_trajectory(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    batch, _ = await built(collector, ledger)
    await lose_ledger(ledger)
    assert await collector.assembler._assemble(batch) == {"lost": 1}
    assert list(store.list(trajectories_prefix(RUN))) == []
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, episode, "w", 60)
    result = AttemptResult(outcome="graded", reward=0.0)
    assert await ledger.episodes.close(RUN, episode, ATTEMPTS_APART + 1, result)
    (again,) = await collector.assembler.once()
    assert again.name == batch_name(1, 1) and batch.name == batch_name(0, 1)
    assert stored(store)[episode].attempt == ATTEMPTS_APART + 1


async def test_while_the_ledger_is_rebuilt_nothing_is_deleted(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    batch, _ = await built(collector, ledger)
    await ledger.redis.flushall()
    assert await collector.assembler._assemble(batch) == {"unknown": 1}
    await lose_ledger(ledger, held="recovering")
    assert await collector.assembler._assemble(batch) == {"unknown": 1}
    assert list(stored(store)) == [episode]


async def test_what_the_rebuilt_ledger_counts_on_is_kept(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    batch, trajectories = await built(collector, ledger)
    await lose_ledger(ledger)
    found = StoredEpisode(episode, 1, 0.0, 0, 3, batch.name)
    await ledger.training.restore(RUN, GROUP, [found], consumed=False)
    assert (await ledger.episodes.get(RUN, episode)).batch == batch.name
    assert await collector.assembler._assemble(batch) == {"written": 1}
    assert stored(store) == {episode: trajectories[0]}


async def test_what_may_be_archived_is_kept(collector: Collector, ledger: Ledger, store: LocalStore) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    batch, _ = await built(collector, ledger)
    await lose_ledger(ledger)
    # The episodes of an archived run are no longer here to say which batch they are in.
    await ledger.redis.hset(key(RUN, "run"), "archive", 1)
    assert await collector.assembler._assemble(batch) == {"written": 1}
    assert list(stored(store)) == [episode]


async def test_of_two_attempts_in_the_store_the_later_one_counts(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    (episode,) = await running(ledger)
    await collector.receive(*calls_of())
    await close(ledger, episode)
    _, (trajectory,) = await built(collector, ledger)
    later = [call.model_copy(update={"attempt": ATTEMPTS_APART + 1}) for call in trajectory.transitions]
    update = {"attempt": ATTEMPTS_APART + 1, "transitions": tuple(later)}
    write_batch(store, RUN, batch_name(1, 1), [trajectory.model_copy(update=update)])
    write_batch(store, RUN, batch_name(0, 7), [trajectory])
    assert [one.attempt for one in stored_trajectories(store, RUN)] == [ATTEMPTS_APART + 1]
    assert [one.attempt for one in stored_heads(store, RUN, groups=[GROUP])] == [ATTEMPTS_APART + 1]
    (wrong,) = {str(found) for found in await check_run(ledger, store, RUN) if found.invariant == "I2"}
    assert f"it is attempt {ATTEMPTS_APART + 1}'s, but attempt 1 won" in wrong


async def test_call_rewards_reach_the_collector(ledger: Ledger) -> None:
    (episode,) = await running(ledger, calls=0)
    result = AttemptResult(outcome="graded", reward=1.0, call_rewards=(0.5, -1.0), output=["done"])
    assert await ledger.episodes.close(RUN, episode, 1, result)
    batch = await ledger.assembly.due(RUN, 60)
    assert batch
    assert [(closed.call_rewards, closed.output) for closed in batch.members] == [((0.5, -1.0), ["done"])]
    # What the trajectory holds is not kept in Redis as well.
    await ledger.assembly.settle(batch, [(episode, 1)])
    kept = await ledger.redis.hgetall(key(RUN, f"e:{episode}"))
    assert not {"output", "rewards", "call_rewards"} & set(kept)
    assert kept["batch"] == "1"


async def test_nobody_is_left_behind_in_a_batch(ledger: Ledger) -> None:
    """A collector that leased the same number from a ledger that has lost its last second knows fewer members."""
    first, second = await running(ledger, 2, calls=0)
    await close(ledger, first, second)
    batch = await ledger.assembly.due(RUN, LEASE_S)
    assert batch and len(batch.members) == 2
    await ledger.assembly.settle(batch, [(first, 1)])
    assert [await state(ledger, one) for one in (first, second)] == [EpisodeState.SUCCEEDED, EpisodeState.COLLECTING]
    other = await ledger.assembly.due(RUN, LEASE_S)
    assert other and other.number == 2 and [closed.episode for closed in other.members] == [second]


async def test_an_attempt_inherits_no_rewards(ledger: Ledger) -> None:
    (episode,) = await running(ledger, calls=0)
    await ledger.episodes.close(RUN, episode, 1, AttemptResult(outcome="graded", reward=1.0, call_rewards=(0.5,)))
    batch = await ledger.assembly.due(RUN, LEASE_S)
    assert batch
    await ledger.assembly.settle(batch, [], [Refusal(episode, 1, "no")])
    await ledger.redis.zadd(key(RUN, "due"), {episode: 0})
    assert await ledger.episodes.claim(RUN, episode, "w", 60)
    await ledger.episodes.close(RUN, episode, 2, AttemptResult(outcome="graded", reward=0.0))
    batch = await ledger.assembly.due(RUN, LEASE_S)
    assert batch and [(closed.attempt, closed.call_rewards) for closed in batch.members] == [(2, ())]
