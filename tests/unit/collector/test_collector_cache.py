"""Decoded segments in memory, and the assembler's timetable."""

from leyden_collector.cache import Segment, SegmentCache, index
from leyden_collector.pace import Pace
from support.spans import transition


def test_the_least_recently_used_segment_goes_first() -> None:
    cache = SegmentCache(100)
    for key in ("a", "b"):
        cache.put(key, Segment(index([transition()])), 40)
    assert cache.get("a")
    cache.put("c", Segment({}), 40)
    assert cache.get("b") is None
    assert cache.get("a")
    assert cache.size == 80


def test_a_segment_larger_than_the_cache_is_not_kept() -> None:
    cache = SegmentCache(100)
    cache.put("a", Segment({}), 40)
    cache.put("b", Segment({}), 101)
    assert (cache.get("a"), cache.get("b"), cache.size) == (Segment({}), None, 40)


def test_putting_a_segment_again_counts_it_once() -> None:
    cache = SegmentCache(100)
    cache.put("a", Segment({}), 40)
    cache.put("a", Segment({}), 50)
    assert cache.size == 50


def test_a_call_sent_twice_is_indexed_once_and_a_contradiction_twice() -> None:
    first, other = transition(1), transition(1, response_id="another")
    assert index([first, first]) == {("g-0.0", 1, 1): [first]}
    assert index([first, other]) == {("g-0.0", 1, 1): [first, other]}


def test_runs_with_recent_spans_are_asked_each_time_and_others_at_a_sweep() -> None:
    now = [0.0]
    pace = Pace(0.05, 1, clock=lambda: now[0])
    assert pace.sweep_due()
    pace.swept(["quiet", "hot"])
    pace.touch("hot")
    assert pace.runs() == ["hot", "quiet"]
    assert pace.runs() == ["hot"]
    assert not pace.sweep_due()
    now[0] = 61
    assert pace.runs() == []
    assert pace.sweep_due()
