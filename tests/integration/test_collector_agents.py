"""Agents' own spans on their way into a trajectory: real Redis, real files, the collector's parts in one process."""

from collections.abc import Sequence

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector.admission import Share
from leyden_collector.assembler import Assembler
from leyden_collector.cache import SegmentCache
from leyden_collector.metrics import LATE_AGENTS
from leyden_collector.pace import Pace
from leyden_collector.reader import SegmentReader
from leyden_collector.segments import Limits, SegmentWriter
from leyden_contracts import AttemptResult, EpisodeState, FailureReason, RunSpec, Signal, Trajectory, Verdict
from leyden_ledger import AgentNote, Ledger, assembly
from leyden_ledger.check import check_run
from leyden_ledger.store import key
from leyden_storage import LocalStore
from leyden_storage.trajectories import stored_trajectories
from support.agent_spans import make_span
from support.episodes import Planned, accept
from support.spans import call_span, request, transition

RUN, GROUP, EPISODE = "run-a", "g-0", "g-0.0"
REPLY = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": "{}"}]}]
TALK = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "chat-1", "gen_ai.output.messages": REPLY}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add", "gen_ai.tool.call.id": "c1"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "ann"}
SPANS = [make_span("ann", AGENT), make_span("talk", TALK, parent="ann"), make_span("add", TOOL, error="boom")]


class Collector:
    """The collector's parts, without HTTP."""

    def __init__(self, store: LocalStore, ledger: Ledger) -> None:
        cache, pace = SegmentCache(2**20), Pace(0.01, 0)
        limits = Limits(flush_s=0.002, max_bytes=2**20, writers=2, timeout_s=20)
        self._writer = SegmentWriter(store, ledger.assembly, cache, limits, pace.touch)
        self.assembler = Assembler(store, ledger, SegmentReader(store, cache), pace, lease_s=60, width=4)

    async def calls(self, *numbers: int) -> None:
        calls = [transition(number) for number in numbers]
        message = request(*map(call_span, calls)).SerializeToString()
        await self._writer.submit(Share(RUN, len(calls), message, calls))

    async def agent(self, spans: Sequence[Span], attempt: int = 1) -> None:
        owner = {"leyden__run": RUN, "leyden__episode": EPISODE, "leyden__attempt": attempt}
        message = request(*spans, **owner).SerializeToString()
        await self._writer.submit(Share(RUN, len(spans), message, agents={(EPISODE, attempt)}))


@pytest.fixture
def collector(store: LocalStore, ledger: Ledger) -> Collector:
    return Collector(store, ledger)


@pytest.fixture
async def running(ledger: Ledger) -> None:
    """A run whose one episode is in its first attempt."""
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "signals": {"tool_error": -0.5}}
    await ledger.runs.create(RunSpec.model_validate(spec))
    await accept(ledger, RUN, [Planned(GROUP, size=1)])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, EPISODE, "w", 60)


async def count(ledger: Ledger, calls: int) -> None:
    for _ in range(calls):
        await ledger.calls.count(RUN, EPISODE, 1)


async def close(ledger: Ledger, **result: object) -> None:
    graded = {"outcome": "graded", "reward": 1.0} | result
    assert await ledger.episodes.close(RUN, EPISODE, 1, AttemptResult.model_validate(graded))


def stored(store: LocalStore) -> Trajectory:
    (found,) = stored_trajectories(store, RUN)
    return found


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["the same collector", "another collector"])
async def test_what_the_agent_did_is_in_the_trajectory(
    elsewhere: bool, collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    await count(ledger, 2)
    for span in SPANS[::-1]:
        await collector.agent([span])
    await collector.agent(SPANS)
    await collector.calls(1, 2)
    await close(ledger, call_rewards=(0.25,))
    await (Collector(store, ledger) if elsewhere else collector).assembler.once()
    trajectory = stored(store)
    assert trajectory.verdict is Verdict.COMPLETE
    assert [(call.number, call.agent) for call in trajectory.transitions] == [(1, "ann"), (2, "")]
    assert [(step.kind, step.name, step.after_call, step.failed) for step in trajectory.steps] == [
        ("tool", "add", 1, True),
        ("agent", "ann", 0, False),
    ]
    assert trajectory.signals == (
        Signal(call=1, name="grader", value=0.25),
        Signal(call=1, name="tool_error", value=-0.5),
    )
    assert await ledger.redis.keys("*:agents") == []


@pytest.mark.usefixtures("running")
async def test_an_agent_whose_calls_went_elsewhere_gives_text(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    await collector.agent(SPANS)
    await close(ledger)
    await collector.assembler.once()
    assert stored(store).verdict is Verdict.TEXT_ONLY
    assert [text.agent for text in stored(store).texts] == ["ann"]
    assert (await ledger.episodes.get(RUN, EPISODE)).state is EpisodeState.SUCCEEDED
    assert [found for found in await check_run(ledger, store, RUN) if found.invariant == "I2"] == []


@pytest.mark.usefixtures("running")
async def test_spans_that_come_while_the_last_call_is_awaited_count_and_later_ones_do_not(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    await count(ledger, 1)
    await close(ledger)
    await collector.agent(SPANS[:1])
    late = LATE_AGENTS._value.get()
    await collector.calls(1)
    await collector.agent(SPANS[2:])
    assert LATE_AGENTS._value.get() == late + 1
    await collector.assembler.once()
    assert [step.name for step in stored(store).steps] == ["ann"]
    await collector.agent(SPANS[2:])
    assert LATE_AGENTS._value.get() == late + 2
    assert len(list(store.list(f"runs/{RUN}/segments/"))) == 4, "they are stored all the same"


@pytest.mark.usefixtures("running")
async def test_spans_of_a_fenced_attempt_are_in_no_trajectory(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    await collector.agent(SPANS)
    failed = AttemptResult(outcome="failed", reason=FailureReason.AGENT_ERROR)
    assert await ledger.episodes.close(RUN, EPISODE, 1, failed)
    assert await ledger.redis.keys("*:agents") == [], "what an attempt had goes with it"
    await collector.agent(SPANS)
    await ledger.redis.zadd(key(RUN, "due"), {EPISODE: 0})
    assert await ledger.episodes.claim(RUN, EPISODE, "w", 60)
    await collector.agent(SPANS[:1], attempt=1)
    await collector.agent(SPANS[2:], attempt=2)
    assert await ledger.episodes.close(RUN, EPISODE, 2, AttemptResult(outcome="graded", reward=1.0))
    await collector.assembler.once()
    assert [step.name for step in stored(store).steps] == ["add"]


@pytest.mark.usefixtures("running")
async def test_lost_segments_of_agents_do_not_make_an_attempt_incomplete(
    collector: Collector, ledger: Ledger, store: LocalStore
) -> None:
    await count(ledger, 1)
    await collector.agent(SPANS)
    for segment in store.list(f"runs/{RUN}/segments/"):
        store._path(segment).unlink()
    await collector.calls(1)
    await close(ledger)
    await Collector(store, ledger).assembler.once()
    assert (stored(store).verdict, stored(store).steps) == (Verdict.COMPLETE, ())


@pytest.mark.usefixtures("running")
async def test_spans_that_cannot_be_read_do_not_spoil_the_attempt(
    collector: Collector, ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await count(ledger, 1)
    await collector.agent(SPANS)
    await collector.calls(1)
    await close(ledger)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("leyden_traces.placing.Places.step", broken)
    await collector.assembler.once()
    assert (stored(store).verdict, stored(store).steps) == (Verdict.COMPLETE, ())


@pytest.mark.usefixtures("running")
async def test_an_attempt_has_so_many_segments_at_most(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "AGENT_SEGMENTS", 2)
    notes = [AgentNote(EPISODE, 1, f"s{number}") for number in (1, 2, 1, 3)]
    assert await ledger.assembly.note_agents(RUN, notes) == {(EPISODE, 1)}
    assert await ledger.assembly.note_agents(RUN, notes[:3]) == set(), "safe to repeat"
    await close(ledger)
    batch = await ledger.assembly.due(RUN, 60)
    assert batch
    assert batch.members[0].agent_segments == ("s1", "s2")
