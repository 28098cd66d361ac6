"""Rings are dealt fairly between tenants and runs."""

from hypothesis import given
from hypothesis import strategies as st

from leyden_task_api.fairness import Demand, deal, fill, interleave

WANTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50))


@given(WANTS, st.integers(-5, 120), st.integers(0, 9))
def test_nothing_is_wasted_and_nobody_gets_more_than_he_wants(wants: dict[str, int], room: int, turn: int) -> None:
    shares = fill(wants, room, turn)
    assert sum(shares.values()) == min(max(room, 0), sum(wants.values()))
    assert all(0 < share <= wants[name] for name, share in shares.items())


@given(WANTS, st.integers(0, 120), st.integers(0, 9))
def test_whoever_gets_less_than_another_has_all_he_wants_or_is_one_short(
    wants: dict[str, int], room: int, turn: int
) -> None:
    shares = fill(wants, room, turn)
    most = max(shares.values(), default=0)
    assert all(shares.get(name, 0) >= min(want, most - 1) for name, want in wants.items())


def test_the_odd_ring_goes_round() -> None:
    got = [next(iter(fill({"a": 5, "b": 5, "c": 5}, 1, turn))) for turn in range(6)]
    assert sorted(got) == ["a", "a", "b", "b", "c", "c"]


def test_a_tenant_with_many_runs_gets_no_more_than_one_with_a_single_run() -> None:
    many = [Demand(f"many-{i}", "many", 0, 100) for i in range(9)]
    dealt = deal([*many, Demand("one", "one", 0, 100)], 90, 0)
    assert dealt.pop("one") == 45
    assert sum(dealt.values()) == 45 and set(dealt.values()) == {5}


def test_a_tenants_higher_priority_goes_first_and_leaves_other_tenants_alone() -> None:
    runs = [Demand("high", "a", 5, 30), Demand("low", "a", 0, 100), Demand("other", "b", -9, 100)]
    assert deal(runs, 80, 0) == {"high": 30, "low": 10, "other": 40}
    assert deal(runs, 40, 0) == {"high": 20, "other": 20}


def test_the_queue_is_in_turns() -> None:
    pairs = interleave({"a": ["1", "2", "3"], "b": ["4"]})
    assert pairs == [("a", "1"), ("b", "4"), ("a", "2"), ("a", "3")]
