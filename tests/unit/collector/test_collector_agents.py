"""Agents' own spans of a segment: whose they are, and how many count."""

import random

from leyden_collector.agents import bounded, read_agents
from leyden_collector.cache import SegmentCache
from leyden_collector.reader import SegmentReader, decode_segment
from leyden_ledger import Closed
from leyden_storage import LocalStore
from leyden_traces import Fact
from support.agent_spans import fact, make_span
from support.spans import attribute, call_span, request, transition

OWNER = {"leyden__run": "run-a", "leyden__episode": "g-0.0"}


def closed(*segments: str, attempt: int = 1) -> Closed:
    return Closed(
        run="run-a",
        group="g-0",
        episode="g-0.0",
        task="t",
        attempt=attempt,
        purpose="train",
        reward=1.0,
        rewards={},
        calls=0,
        segments={},
        agent_segments=segments,
    )


def test_spans_are_their_resources_attempts_or_their_own() -> None:
    mine, other, nobodys = make_span("mine"), make_span("other"), make_span("nobodys")
    other.attributes.extend([attribute("leyden.episode", "g-0.1"), attribute("leyden.attempt", 2)])
    found = read_agents(request(mine, other, call_span(transition(1)), leyden__attempt="1", **OWNER))
    assert {owner: [each.name for each in facts] for owner, facts in found.items()} == {
        ("g-0.0", 1): ["mine"],
        ("g-0.1", 2): ["other"],
    }
    assert read_agents(request(nobodys)) == {}
    for odd in ("", "-1", "one", "١", "1.0"):
        assert read_agents(request(nobodys, leyden__attempt=odd, **OWNER)) == {}


def test_the_same_spans_count_in_whatever_order_they_come() -> None:
    facts = [fact(f"s{number}", {"input.value": "x" * 10, "openinference.span.kind": "TOOL"}) for number in range(9)]
    facts += [fact(f"p{number}") for number in range(9)]
    for seed in range(5):
        mixed = random.Random(seed).sample(facts + facts, 2 * len(facts))
        kept, left_out = bounded(mixed, spans=12)
        assert [each.name for each in kept] == [each.name for each in (*facts[:9], *facts[9:12])]
        assert left_out == 6
        assert [each.name for each in bounded(mixed, characters=45)[0]] == [each.name for each in facts[:4]]
        assert bounded(bounded(mixed[:20], spans=12)[0] + mixed[20:], spans=12)[0] == kept


async def test_what_agents_say_is_read_from_memory_or_from_the_store(store: LocalStore) -> None:
    data = request(make_span("mine"), call_span(transition(1)), leyden__attempt=1, **OWNER).SerializeToString()
    store.put("seg", data)
    reader = SegmentReader(store, SegmentCache(2**20))
    (found,) = await reader.facts(closed("seg", "lost"))
    assert found.name == "mine"
    store._path("seg").unlink()
    assert await reader.facts(closed("seg")) == [found], "it is in memory"
    assert await reader.facts(closed("seg", attempt=2)) == []
    assert decode_segment("seg", data).calls == {("g-0.0", 1, 1): [transition(1, start_ns=1, end_ns=2)]}


def test_a_fact_says_how_much_it_holds() -> None:
    assert Fact(span="0" * 16).size == 0
    assert fact("t", {"input.value": "x" * 10, "openinference.span.kind": "TOOL"}).size == 10
