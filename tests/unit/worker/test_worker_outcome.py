"""Which end of a process means which result, and that only a grade is a reward."""

from typing import Any

import pytest

from leyden_contracts import AttemptResult, FailureReason
from leyden_worker.outcome import AttemptFailed, agent_output, graded, shortened
from leyden_worker.parent_link import End

R = FailureReason


def raised(*types: str) -> End:
    return End("exited", 0, "", {"error": {"types": list(types), "message": "Traceback: it broke"}})


@pytest.mark.parametrize(
    ("end", "reason", "said"),
    [
        (raised("KeyError", "Exception"), R.AGENT_ERROR, "it broke"),
        (raised("APIConnectionError", "Exception"), R.INFRASTRUCTURE, "it broke"),
        (raised("APITimeoutError", "APIConnectionError"), R.INFRASTRUCTURE, "it broke"),
        (raised("InternalServerError", "APIStatusError"), R.INFRASTRUCTURE, "it broke"),
        (raised("RateLimitError", "APIStatusError"), R.AGENT_ERROR, "it broke"),
        (End("timeout", 9, "thinking\n"), R.TIMEOUT, "longer than 7 s and was killed; the last it printed:\nthinking"),
        (End("signalled", 11, ""), R.AGENT_ERROR, "killed by SIGSEGV"),
        (End("signalled", 63, ""), R.AGENT_ERROR, "killed by signal 63"),
        (End("exited", 3, ""), R.AGENT_ERROR, "exit code 3"),
        (End("unborn", 11, ""), R.INFRASTRUCTURE, "no process could be started"),
        (End("lost", 0, ""), R.INFRASTRUCTURE, "was lost"),
    ],
)
def test_how_an_agent_fails(end: End, reason: FailureReason, said: str) -> None:
    with pytest.raises(AttemptFailed) as failure:
        agent_output(end, 7)
    assert failure.value.reason is reason
    assert said in str(failure.value)
    assert failure.value.result.outcome == "failed"
    assert failure.value.result.reward is None


@pytest.mark.parametrize("end", [raised("GraderError"), End("timeout", 9), End("signalled", 9), End("exited", 1)])
def test_a_grader_that_fails_makes_no_reward(end: End) -> None:
    with pytest.raises(AttemptFailed) as failure:
        graded(end, 60, "output")
    assert failure.value.reason is R.GRADER_ERROR


def test_an_agent_that_is_killed_after_it_has_reported_has_done_its_work() -> None:
    assert agent_output(End("timeout", 9, "", {"value": 0}), 7) == 0


def test_a_grade_is_the_reward() -> None:
    end = End("exited", 0, "", {"value": {"reward": 0.5, "rewards": {"a": 0.25, "b": 0.25}, "calls": [0.5, 0]}})
    assert graded(end, 60, {"answer": 4}) == AttemptResult(
        outcome="graded", reward=0.5, rewards={"a": 0.25, "b": 0.25}, call_rewards=(0.5, 0.0), output={"answer": 4}
    )


@pytest.mark.parametrize("output", ["é" * 20_000, {"text": "é" * 20_000}, [1] * 20_000])
def test_a_long_output_is_cut_to_16_kb(output: Any) -> None:
    cut = shortened(output)
    assert isinstance(cut, str)
    assert 16_000 < len(cut.encode()) <= 16_384


@pytest.mark.parametrize("output", [None, "short", {"a": [1, 2]}, "lone surrogate \ud800"])
def test_a_short_output_is_kept(output: Any) -> None:
    assert shortened(output) == output


def test_a_long_message_keeps_its_end() -> None:
    result = AttemptFailed(R.AGENT_ERROR, "x" * 10_000 + " the end").result
    assert result.message.endswith(" the end")
    assert len(result.message) == 4000
