"""The verdict: which replicas pass, and which never do."""

import math
import random

import pytest

from leyden_adapter_loader.proof import SAME_POLICY, Verdict
from leyden_adapter_loader.proof import judge as judge_questions
from leyden_adapter_loader.questions import Question, Unprovable, choose
from leyden_contracts import Probe

TOKENS = 128
LOOSE, TIGHT = 0.2, 1e-3
"""Tolerances for a replica in bfloat16 and in float32."""


def policy(step: float, seed: int = 0, probe: int = 0) -> list[float]:
    """Return a policy `step` away from the one of step 0, in a direction made from the seed."""
    base, way = random.Random(f"base {probe}"), random.Random(f"way {seed} {probe}")
    return [-3 * base.random() - 0.1 + step * way.gauss(0, 1) for _ in range(TOKENS - 1)]


def shaken(logprobs: list[float], rounding: float, probe: int) -> list[float]:
    noise = random.Random(f"noise {probe}")
    return [value + noise.gauss(0, rounding) for value in logprobs]


def judge(asked: list[Probe], answers: list[list[float]], tolerance: float) -> Verdict:
    """Ask every question of the probes, and judge."""
    return judge_questions(choose(asked), [answer for answered in answers for answer in answered], tolerance)


def probes(learner: float, parent: float = 0.0, base: float = 0.0) -> list[Probe]:
    return [
        Probe(
            token_ids=list(range(TOKENS)),
            places=list(range(1, TOKENS)),
            next_ids=list(range(1, TOKENS)),
            logprobs=policy(learner, probe=number),
            parent_logprobs=policy(parent, probe=number),
            base_logprobs=policy(base, probe=number),
        )
        for number in range(3)
    ]


def served(step: float, rounding: float = 0.0) -> list[list[float]]:
    return [shaken(policy(step, probe=number), rounding, number) for number in range(3)]


@pytest.mark.parametrize("step", [0.0, 2e-4, 0.01, 0.5])
@pytest.mark.parametrize("rounding", [0.0, 1e-6, 1e-5, 1e-4])
def test_an_honest_replica_passes(step: float, rounding: float) -> None:
    verdict = judge(probes(2 * step, step), served(2 * step, rounding), TIGHT)
    assert verdict.passed, verdict.reason
    assert verdict.worst == pytest.approx(3 * rounding, rel=0.5)


@pytest.mark.parametrize("step", [2e-4, 0.01, 0.5])
@pytest.mark.parametrize("rounding", [0.0, 1e-6, 1e-5])
@pytest.mark.parametrize("tolerance", [TIGHT, LOOSE])
def test_a_replica_on_the_parent_or_the_base_never_passes(step: float, rounding: float, tolerance: float) -> None:
    asked = probes(2 * step, step)
    assert not judge(asked, served(step, rounding), tolerance).passed, "it serves the parent"
    assert not judge(asked, served(0, rounding), tolerance).passed, "it serves the base"


def test_a_difference_far_below_the_tolerance_is_seen() -> None:
    """A replica in bfloat16: each logprob is off by more than the policies differ, and still it cannot lie."""
    step, rounding = 0.02, 0.03
    assert judge(probes(step), served(step, rounding), LOOSE).passed
    verdict = judge(probes(step), served(0, rounding), LOOSE)
    assert not verdict.passed
    assert "parent" in verdict.reason


def test_equal_policies_pass() -> None:
    """Learning rate 0."""
    verdict = judge(probes(0), served(0, 1e-5), TIGHT)
    assert verdict.passed and verdict.unseen == ()


def test_policies_that_differ_by_float32_rounding_are_equal() -> None:
    """The learner's parent and base need not be bit-equal to it at learning rate 0."""
    tiny = SAME_POLICY / 10
    verdict = judge(probes(tiny), served(0), TIGHT)
    assert verdict.passed and verdict.unseen == ()


def test_what_rounding_hides_is_told() -> None:
    verdict = judge(probes(1e-3), served(1e-3, 0.03), LOOSE)
    assert verdict.passed
    assert verdict.unseen == ("parent", "base")


def test_a_stranger_does_not_pass() -> None:
    stranger = [policy(0.5, seed=9, probe=number) for number in range(3)]
    assert not judge(probes(0.5), stranger, LOOSE).passed
    assert not judge(probes(0.0), stranger, LOOSE).passed


@pytest.mark.parametrize("factor", [0.4, 1.6, -1.0])
def test_an_adapter_with_another_scale_does_not_pass(factor: float) -> None:
    assert not judge(probes(0.01), served(0.01 * factor), LOOSE).passed


def test_one_wrong_logprob_is_enough() -> None:
    answers = served(0.5)
    answers[2][5] += 2 * TIGHT
    assert "0.002" in judge(probes(0.5), answers, TIGHT).reason


def test_without_probes_nothing_is_proved() -> None:
    with pytest.raises(Unprovable, match="no probes"):
        choose([])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parent_logprobs": [math.nan] * (TOKENS - 1)}, "not a finite number"),
        ({"base_logprobs": [-1.0] * TOKENS}, "one token and one logprob for each place"),
        ({"next_ids": [1]}, "one token and one logprob for each place"),
        ({"token_ids": [1]}, "outside of its tokens"),
        ({"places": [0] * (TOKENS - 1)}, "outside of its tokens"),
    ],
)
def test_probes_that_are_broken_prove_nothing(change: dict, reason: str) -> None:
    with pytest.raises(Unprovable, match=reason):
        choose([probe.model_copy(update=change) for probe in probes(0.5)])


def test_probes_without_places_prove_nothing() -> None:
    empty = {name: [] for name in ("places", "next_ids", "logprobs", "parent_logprobs", "base_logprobs")}
    with pytest.raises(Unprovable, match="no places"):
        choose([probe.model_copy(update=empty) for probe in probes(0.5)])


def test_a_question_is_what_comes_after_a_beginning() -> None:
    values = {"logprobs": [-1.0, -2.0], "parent_logprobs": [-3.0, -4.0], "base_logprobs": [-5.0, -6.0]}
    asked = choose([Probe(token_ids=[7, 8, 9], places=[1, 3], next_ids=[4, 5], **values)])
    assert asked == [Question((7,), 4, -1.0, -3.0, -5.0), Question((7, 8, 9), 5, -2.0, -4.0, -6.0)]
