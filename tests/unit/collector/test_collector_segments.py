"""Group commit: one segment for many senders; nobody is told "stored" before it is."""

import asyncio
import contextlib

import pytest

from leyden_collector.admission import Share
from leyden_collector.cache import SegmentCache
from leyden_collector.metrics import LATE_AGENTS
from leyden_collector.refusal import RefusedSpan
from leyden_collector.segments import Limits, NotDurable, SegmentWriter
from support.collector import SwitchedNotes, SwitchedStore
from support.spans import agent_span, call_span, request, spans_of, transition


@pytest.fixture
def store() -> SwitchedStore:
    return SwitchedStore()


@pytest.fixture
def notes(store: SwitchedStore) -> SwitchedNotes:
    return SwitchedNotes(store)


def writer(store: SwitchedStore, notes: SwitchedNotes, **limits: float) -> SegmentWriter:
    settings = {"flush_s": 0.01, "max_bytes": 2**20, "writers": 2, "timeout_s": 0.3, "quarantine_bytes": 2**20} | limits
    return SegmentWriter(store, notes, SegmentCache(2**20), Limits(**settings))  # type: ignore[arg-type]


def share(number: int = 1, run: str = "run-a") -> Share:
    call = transition(number, run=run)
    return Share(run, 1, request(call_span(call)).SerializeToString(), [call])


async def test_many_senders_share_one_segment_a_run(store: SwitchedStore, notes: SwitchedNotes) -> None:
    one = writer(store, notes)
    shares = [share(n, run) for n in range(1, 21) for run in ("run-a", "run-b")]
    await asyncio.gather(*map(one.submit, shares))
    assert sorted(key.split("/")[1] for key in store.objects) == ["run-a", "run-b"]
    assert all(len(spans_of(data)) == 20 for data in store.objects.values())
    assert len(notes.noted) == 40
    await one.aclose()


async def test_a_full_segment_is_written_at_once(store: SwitchedStore, notes: SwitchedNotes) -> None:
    one = writer(store, notes, flush_s=5, max_bytes=1)
    async with asyncio.timeout(1):
        await asyncio.gather(one.submit(share(1)), one.submit(share(2)))
    assert len(store.objects) == 2


async def test_a_slow_store_gets_fewer_and_larger_segments(store: SwitchedStore, notes: SwitchedNotes) -> None:
    one = writer(store, notes, flush_s=0.001, writers=1, timeout_s=5)
    store.gate.clear()
    senders = []
    for number in range(1, 11):
        senders.append(asyncio.create_task(one.submit(share(number))))
        await asyncio.sleep(0.01)
    store.gate.set()
    await asyncio.gather(*senders)
    assert len(store.objects) == 2
    assert sum(len(spans_of(data)) for data in store.objects.values()) == 10


@pytest.mark.parametrize("part", ["store", "ledger"])
async def test_a_failure_reaches_every_sender_and_only_them(
    part: str, store: SwitchedStore, notes: SwitchedNotes
) -> None:
    one = writer(store, notes)
    {"store": store, "ledger": notes}[part].down = True
    outcomes = await asyncio.gather(one.submit(share(1)), one.submit(share(2)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotDurable, NotDurable]
    assert notes.noted == []
    store.down = notes.down = False
    await one.submit(share(1))
    assert len(notes.noted) == 1


async def test_a_hanging_store_is_reported_in_time_and_holds_no_more_than_its_writers(
    store: SwitchedStore, notes: SwitchedNotes
) -> None:
    one = writer(store, notes, writers=2, timeout_s=0.1)
    store.gate.clear()
    for _ in range(4):
        outcomes = await asyncio.gather(
            *(one.submit(share(run=run)) for run in ("run-a", "run-b")), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {NotDurable}
    assert store.calls == 2
    assert one._pool._work_queue.qsize() == 0, "what timed out must not wait in memory for a thread"
    store.gate.set()
    await asyncio.sleep(0.05)
    await one.submit(share(9))
    assert [note.call for note in notes.noted] == [9]


async def test_a_sender_that_leaves_takes_nobody_with_it(store: SwitchedStore, notes: SwitchedNotes) -> None:
    one = writer(store, notes)
    leaving = asyncio.create_task(one.submit(share(1)))
    staying = asyncio.create_task(one.submit(share(2)))
    await asyncio.sleep(0)
    leaving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await leaving
    await staying
    assert sorted(note.call for note in notes.noted) == [1, 2]


async def test_refused_spans_are_durable_too(store: SwitchedStore, notes: SwitchedNotes) -> None:
    one = writer(store, notes)
    refused = [RefusedSpan("malformed", "no tokens", b"raw", 3)]
    await asyncio.gather(one.submit(Share("run-a", refused=refused)), one.submit(Share(None, refused=refused)))
    folders = sorted(key.rpartition("/")[0] for key in store.objects)
    assert folders == ["quarantine", "runs/run-a/quarantine"]
    assert all(b'"reason": "no tokens"' in data for data in store.objects.values())
    assert notes.noted == []


async def test_agents_spans_are_noted_before_the_calls_that_may_complete_their_attempt(
    store: SwitchedStore, notes: SwitchedNotes
) -> None:
    one = writer(store, notes)
    late = LATE_AGENTS._value.get()
    talk = Share("run-a", 1, request(agent_span()).SerializeToString(), agents={("g-0.0", 1)})
    await asyncio.gather(one.submit(share(1)), one.submit(talk))
    (segment,) = store.objects
    assert [(note.episode, note.attempt, note.segment) for note in notes.agents] == [("g-0.0", 1, segment)]
    assert [note.segment for note in notes.noted] == [segment]
    assert LATE_AGENTS._value.get() == late


async def test_agents_spans_that_cannot_be_noted_are_not_acknowledged(
    store: SwitchedStore, notes: SwitchedNotes
) -> None:
    one = writer(store, notes)
    notes.down = True
    with pytest.raises(NotDurable):
        await one.submit(Share("run-a", 1, request(agent_span()).SerializeToString(), agents={("g-0.0", 1)}))
