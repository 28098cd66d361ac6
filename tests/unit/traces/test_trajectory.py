"""What makes a trajectory complete."""

import pytest

from leyden_contracts import Transition, Verdict
from leyden_traces import build_trajectory, pack_ids, pack_logprobs


def call(number: int, **changes) -> Transition:
    values = {
        "run": "r1",
        "episode": "g1.0",
        "attempt": 1,
        "number": number,
        "role": "policy",
        "policy_version": 0,
        "prompt_token_ids": pack_ids([1]),
        "response_token_ids": pack_ids([number]),
        "response_logprobs": pack_logprobs([-1.0]),
        "temperature": 1.0,
        "finish_reason": "stop",
        "response_id": f"c{number}",
        "replica": "a",
    }
    return Transition(**{**values, **changes})


def build(calls: int, transitions):
    return build_trajectory(
        run="r1",
        group="g1",
        episode="g1.0",
        task="t1",
        attempt=1,
        purpose="train",
        reward=0.5,
        rewards={"a": 0.5},
        calls=calls,
        transitions=transitions,
    )


def test_transitions_are_in_call_order_whatever_the_order_of_arrival():
    trajectory = build(3, [call(3), call(1), call(2)])
    assert [t.number for t in trajectory.transitions] == [1, 2, 3]
    assert trajectory.verdict is Verdict.COMPLETE
    assert (trajectory.reward, trajectory.rewards) == (0.5, {"a": 0.5})


@pytest.mark.parametrize("present", [[], [1], [2, 3], [1, 3], [1, 2, 4], [1, 2, 3, 4]])
def test_a_missing_or_uncounted_call_makes_it_incomplete(present):
    assert build(3, map(call, present)).verdict is Verdict.INCOMPLETE


def test_an_attempt_without_calls_is_complete_and_empty():
    assert build(0, []).verdict is Verdict.COMPLETE
    assert build(0, []).transitions == ()


def test_a_span_delivered_twice_counts_once():
    trajectory = build(2, [call(1), call(2), call(1)])
    assert len(trajectory.transitions) == 2
    assert trajectory.verdict is Verdict.COMPLETE


def test_two_different_spans_of_one_call_make_it_incomplete():
    assert build(2, [call(1), call(2), call(1, response_id="other")]).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("foreign", [{"run": "r2"}, {"episode": "g1.1"}, {"attempt": 2}])
def test_a_foreign_transition_is_an_error(foreign):
    with pytest.raises(ValueError, match="is not r1/g1"):
        build(1, [call(1, **foreign)])
