"""The ledger's promises, against a real Redis."""

import asyncio

import pytest

from leyden_contracts import EPISODE_TRANSITIONS, AttemptResult, EpisodeState, FailureReason, RunSpec
from leyden_ledger import Ending, Fenced, Ledger, Refusal, SpanNote, TooManyCalls
from support.episodes import Planned, accept
from support.playing import settle_all

RUN = "run-1"
GRADED = AttemptResult(outcome="graded", reward=1.0)


def failed(reason: FailureReason = FailureReason.AGENT_ERROR) -> AttemptResult:
    return AttemptResult(outcome="failed", reason=reason, message="boom")


def group(name: str = "g", size: int = 2, **more: object) -> Planned:
    return Planned(**{"id": name, "size": size, **more})


async def make_run(ledger: Ledger, **more: object) -> None:
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "group_size": 2, **more}
    assert await ledger.runs.create(RunSpec.model_validate(spec))


async def claimed(ledger: Ledger, *groups: Planned) -> int:
    await accept(ledger, RUN, groups)
    await ledger.episodes.release(RUN)
    claim = await ledger.episodes.claim(RUN, "g.0", "w", 10)
    assert claim
    return claim.attempt


async def state(ledger: Ledger, episode: str = "g.0") -> EpisodeState:
    return (await ledger.episodes.get(RUN, episode)).state


async def test_whole_life(ledger: Ledger) -> None:
    await make_run(ledger)
    attempt = await claimed(ledger, group(size=1))
    assert attempt == 1
    assert (await ledger.calls.begin(RUN, "g.0", 1)).pinned is None
    assert await ledger.calls.pin(RUN, "g.0", 1, 3) == 3
    assert await ledger.calls.pin(RUN, "g.0", 1, 4) == 3
    assert await ledger.replicas.wanted(RUN) == {3}
    assert await ledger.calls.count(RUN, "g.0", 1) == 1
    assert await ledger.episodes.close(RUN, "g.0", 1, GRADED)
    assert await ledger.assembly.due(RUN, 10) is None
    await ledger.assembly.note_spans(RUN, [SpanNote("g.0", 1, 1, "seg")] * 2)
    batch = await ledger.assembly.due(RUN, 10)
    assert batch
    (closed,) = batch.members
    assert (closed.calls, closed.segments, closed.reward) == (1, {1: "seg"}, 1.0)
    assert await ledger.assembly.due(RUN, 10) is None, "leased to the first collector"
    for _ in range(2):
        assert await ledger.assembly.settle(batch, [("g.0", 1)]) is Ending.SETTLED
    assert await state(ledger) is EpisodeState.SUCCEEDED
    assert (await ledger.episodes.get(RUN, "g.0")).batch == batch.name == "0000-000000001"
    (finished,) = await ledger.training.finished_groups(RUN, 0, 10)
    assert finished.id == "g"
    summary = await ledger.runs.summary(RUN)
    assert summary.counts == {"train:queued": 0, "train:running": 0, "train:collecting": 0, "train:succeeded": 1}
    assert summary.unfinished == 0 and summary.pending == 0
    assert summary.rewards == {"train": (1.0, 1)}
    assert await ledger.replicas.wanted(RUN) == set()


async def test_of_many_claims_one_wins(ledger: Ledger) -> None:
    await make_run(ledger)
    await accept(ledger, RUN, [group()])
    await ledger.episodes.release(RUN)
    claims = await asyncio.gather(*(ledger.episodes.claim(RUN, "g.0", f"w{i}", 10) for i in range(20)))
    assert sum(claim is not None for claim in claims) == 1


async def test_a_claim_whose_answer_was_lost_is_the_same_claim(ledger: Ledger) -> None:
    await make_run(ledger)
    await accept(ledger, RUN, [group()])
    await ledger.episodes.release(RUN)
    answers = [await ledger.episodes._scripts.run("claim", RUN, ("g.0", "w", 10_000, number)) for number in "aab"]
    assert answers[0] == answers[1] and answers[0][0] == 1
    assert answers[2] is None
    replies = [("a", 1), ("a", 1), ("b", 2), ("b", 2), ("c", 1)]
    counted = [await ledger.calls._scripts.run("count_call", RUN, ("g.0", 1, *reply)) for reply in replies]
    assert counted == [1, 1, 2, 2, 4]


async def test_the_first_lost_worker_costs_no_pause_and_the_next_one_does(ledger: Ledger) -> None:
    await make_run(ledger)
    await claimed(ledger, group(size=1))
    for free_at_once in (True, False):
        await ledger.episodes.claim(RUN, "g.0", "w", 10)
        await ledger.episodes.heartbeat(RUN, "g.0", (await ledger.episodes.get(RUN, "g.0")).attempt, 0)
        assert await ledger.episodes.expire(RUN, 60) == 1
        assert (await ledger.episodes.look(RUN)).due == free_at_once


async def test_a_lost_lease_fences_the_old_attempt(ledger: Ledger) -> None:
    await make_run(ledger)
    await accept(ledger, RUN, [group()])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, "g.0", "w", 0.05)
    await asyncio.sleep(0.1)
    assert await ledger.episodes.expire(RUN, 60) == 1
    second = await ledger.episodes.claim(RUN, "g.0", "w2", 10)
    assert second and second.attempt == 2
    assert not await ledger.episodes.heartbeat(RUN, "g.0", 1, 10)
    assert not await ledger.episodes.close(RUN, "g.0", 1, GRADED)
    assert not await ledger.episodes.give_back(RUN, "g.0", 1)
    for step in (ledger.calls.begin, ledger.calls.count):
        with pytest.raises(Fenced):
            await step(RUN, "g.0", 1)
    with pytest.raises(Fenced):
        await ledger.calls.pin(RUN, "g.0", 1, 1)
    notes = [SpanNote("g.0", 1, 1, "old"), SpanNote("g.0", 1, 2, "old"), SpanNote("nobody.0", 1, 1, "old")]
    assert await ledger.assembly.note_spans(RUN, notes) == {("g.0", 1)}
    assert await ledger.assembly.note_spans(RUN, [SpanNote("nobody.0", 2, 1, "old")]) == set()
    assert await ledger.episodes.close(RUN, "g.0", 2, GRADED)
    batch = await ledger.assembly.due(RUN, 10)
    assert batch and [closed.segments for closed in batch.members] == [{}]


@pytest.mark.parametrize(
    ("reason", "end"), [(FailureReason.AGENT_ERROR, "failed"), (FailureReason.TIMEOUT, "timed_out")]
)
async def test_attempts_run_out(ledger: Ledger, reason: FailureReason, end: str) -> None:
    await make_run(ledger, episodes={"max_attempts": 2})
    await claimed(ledger, group(size=1))
    assert await ledger.episodes.close(RUN, "g.0", 1, failed(reason))
    assert await state(ledger) is EpisodeState.QUEUED
    assert await ledger.episodes.due(RUN, 10, 5) == [], "it waits for its back-off"
    await asyncio.sleep(0.6)
    assert await ledger.episodes.due(RUN, 10, 5) == ["g.0"]
    assert await ledger.episodes.claim(RUN, "g.0", "w", 10)
    assert await ledger.episodes.close(RUN, "g.0", 2, failed(reason))
    episode = await ledger.episodes.get(RUN, "g.0")
    assert (episode.state, episode.reward, episode.reason, episode.message) == (end, None, reason, "boom")
    assert [g.id for g in await ledger.training.finished_groups(RUN, 0, 10)] == ["g"]
    assert (await ledger.runs.summary(RUN)).failures == {reason: 2}


async def test_what_is_not_the_agents_fault_costs_it_less(ledger: Ledger) -> None:
    await make_run(ledger, episodes={"max_attempts": 1})
    await claimed(ledger, group(size=1))
    for attempt in range(1, 6):
        assert await ledger.episodes.close(RUN, "g.0", attempt, failed(FailureReason.INFRASTRUCTURE))
        assert await state(ledger) is (EpisodeState.QUEUED if attempt < 5 else EpisodeState.FAILED)
        await ledger.redis.zadd(f"leyden:{{{RUN}}}:due", {"g.0": 1}, xx=True)
        assert bool(await ledger.episodes.claim(RUN, "g.0", "w", 10)) == (attempt < 5)


async def test_a_missing_span_is_retried_and_carries_no_reward(ledger: Ledger) -> None:
    await make_run(ledger)
    await claimed(ledger, group())
    await ledger.calls.count(RUN, "g.0", 1)
    assert await ledger.episodes.close(RUN, "g.0", 1, GRADED)
    assert await ledger.episodes.expire(RUN, 60) == 0
    await asyncio.sleep(0.02)
    assert await ledger.episodes.expire(RUN, 0.01) == 1
    assert await state(ledger) is EpisodeState.QUEUED
    assert not await ledger.redis.hexists(f"leyden:{{{RUN}}}:e:g.0", "reward")


async def test_give_back_costs_no_attempt(ledger: Ledger) -> None:
    await make_run(ledger, episodes={"max_attempts": 1})
    await claimed(ledger, group())
    assert await ledger.episodes.give_back(RUN, "g.0", 1)
    claim = await ledger.episodes.claim(RUN, "g.0", "w2", 10)
    assert claim and claim.attempt == 2


async def test_release_follows_the_staleness_bound(ledger: Ledger) -> None:
    await make_run(ledger, algorithm={"groups_per_step": 2, "max_staleness": 1})
    await accept(ledger, RUN, [group(f"g{i}", 2) for i in range(9)])
    assert await ledger.episodes.claim(RUN, "g0.0", "w", 10) is None, "not released yet"
    assert await ledger.episodes.release(RUN) == 4
    assert await ledger.episodes.release(RUN) == 0
    assert await ledger.training.publish(RUN, 1)
    assert await ledger.episodes.release(RUN) == 0, "published is not proved"
    assert await ledger.replicas.mark_ready(RUN, 1)
    assert await ledger.episodes.release(RUN) == 2
    assert len(await ledger.episodes.due(RUN, 100, 5)) == 12


async def test_evaluations_keep_their_version_wanted_and_are_not_announced(ledger: Ledger) -> None:
    await make_run(ledger)
    await ledger.training.publish(RUN, 2)
    await accept(ledger, RUN, [group("e", 1, purpose="eval", version=1), group("n", 1, purpose="eval")])
    assert await ledger.replicas.wanted(RUN) == {1, 2}
    claim = await ledger.episodes.claim(RUN, "e.0", "w", 10)
    assert claim and claim.policy_version == 1
    newest = await ledger.episodes.claim(RUN, "n.0", "w", 10)
    assert newest and newest.policy_version == 2
    await ledger.episodes.close(RUN, "e.0", 1, GRADED)
    await settle_all(ledger, RUN)
    assert await ledger.training.finished_groups(RUN, 0, 10) == []
    assert await ledger.replicas.wanted(RUN) == {2}


async def test_spans_that_make_no_whole_are_an_incomplete_attempt(ledger: Ledger) -> None:
    await make_run(ledger)
    await claimed(ledger, group())
    await ledger.episodes.close(RUN, "g.0", 1, GRADED)
    batch = await ledger.assembly.due(RUN, 10)
    assert batch
    for _ in range(2):
        assert await ledger.assembly.settle(batch, [], [Refusal("g.0", 1, "call 1 twice")]) is Ending.SETTLED
    assert await state(ledger) is EpisodeState.QUEUED
    assert (await ledger.episodes.get(RUN, "g.0")).message == "call 1 twice"
    assert (await ledger.runs.summary(RUN)).failures == {"incomplete_trace": 1}
    assert await ledger.assembly.due(RUN, 10) is None


async def test_calls_are_limited(ledger: Ledger) -> None:
    await make_run(ledger, episodes={"max_calls": 1})
    await claimed(ledger, group())
    await ledger.calls.count(RUN, "g.0", 1)
    with pytest.raises(TooManyCalls):
        await ledger.calls.begin(RUN, "g.0", 1)


async def test_events_follow_only_the_state_table(ledger: Ledger) -> None:
    await make_run(ledger, episodes={"max_attempts": 2})
    await claimed(ledger, group(size=1))
    await ledger.episodes.close(RUN, "g.0", 1, failed())
    await asyncio.sleep(0.6)
    await ledger.episodes.claim(RUN, "g.0", "w", 10)
    await ledger.episodes.close(RUN, "g.0", 2, GRADED)
    await settle_all(ledger, RUN)
    events = [fields for _, fields in await ledger.events.read(RUN)]
    states = ["queued"] + [fields["state"] for fields in events if fields["kind"] == "episode"]
    assert states == ["queued", "running", "queued", "running", "collecting", "succeeded"]
    for before, after in zip(states, states[1:], strict=False):
        assert EpisodeState(after) in EPISODE_TRANSITIONS[EpisodeState(before)]


async def test_a_replica_that_stops_beating_is_gone(ledger: Ledger) -> None:
    from leyden_ledger import ReplicaStatus

    status = ReplicaStatus(id="r", url="http://x", base_model="m", ready=["a"])
    await ledger.replicas.beat(status, 0.1)
    assert await ledger.replicas.list() == [status]
    await asyncio.sleep(0.15)
    assert await ledger.replicas.list() == []
