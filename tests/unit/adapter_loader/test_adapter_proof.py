"""The verdict: which replicas pass, and which never do."""

import math
import random

import pytest

from leyden_adapter_loader.proof import SAME_POLICY, Verdict
from leyden_adapter_loader.proof import judge as judge_questions
from leyden_adapter_loader.questions import Answer, Unprovable, choose, comparable
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
    """Ask for every token of the probes, and judge."""
    questions = choose(asked, each=TOKENS)
    by_place = {(q.learner, len(q.prefix)): q for q in questions}
    in_order = [
        (by_place[learner, place], answer)
        for probe, answered in zip(asked, answers, strict=True)
        for place, (learner, answer) in enumerate(zip(probe.logprobs, answered, strict=True), 1)
    ]
    return judge_questions([question for question, _ in in_order], [answer for _, answer in in_order], tolerance)


def probes(learner: float, parent: float = 0.0, base: float = 0.0) -> list[Probe]:
    return [
        Probe(
            token_ids=list(range(TOKENS)),
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


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_answers_that_cannot_be_compared_prove_nothing(value: float) -> None:
    questions = choose(probes(0.5))
    answers = [Answer(question.learner) for question in questions[1:]] + [Answer(value)]
    with pytest.raises(Unprovable, match="not a finite number"):
        comparable(questions, answers, LOOSE)


def test_without_probes_nothing_is_proved() -> None:
    with pytest.raises(Unprovable, match="no probes"):
        choose([])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parent_logprobs": [math.nan] * (TOKENS - 1)}, "not a finite number"),
        ({"base_logprobs": [-1.0] * TOKENS}, "one logprob for each token"),
        ({"token_ids": [1]}, "one logprob for each token"),
    ],
)
def test_probes_that_are_broken_prove_nothing(change: dict, reason: str) -> None:
    with pytest.raises(Unprovable, match=reason):
        choose([probe.model_copy(update=change) for probe in probes(0.5)])


def test_the_most_telling_of_the_likely_tokens_are_asked_for() -> None:
    learner = [-0.1, -9.0, -2.0, -0.5, -4.0]
    probe = Probe(
        token_ids=[10, 11, 12, 13, 14, 15],
        logprobs=learner,
        parent_logprobs=[-0.1, -1.0, -1.0, -0.9, -4.0],
        base_logprobs=[-0.2, -1.0, -2.0, -0.5, -4.0],
    )
    asked = choose([probe], each=4)
    assert [(q.prefix, q.token) for q in asked] == [
        ((10, 11, 12), 13),
        ((10, 11, 12, 13), 14),
        ((10,), 11),
        ((10, 11, 12, 13, 14), 15),
    ], "likely ones by what they tell, then the likeliest of the others"


def test_a_token_that_the_replica_does_not_list() -> None:
    questions = choose(probes(0.5))
    answers = [Answer(question.learner) for question in questions]
    unlikely = Answer(questions[0].learner + LOOSE, listed=False)
    kept, served = comparable(questions, [unlikely, *answers[1:]], LOOSE)
    assert (len(kept), len(served)) == (len(questions) - 1, len(questions) - 1), "by the learner's word it need not be"
    missing = Answer(questions[0].learner - 2 * LOOSE, listed=False)
    kept, served = comparable(questions, [missing, *answers[1:]], LOOSE)
    assert not judge_questions(kept, served, LOOSE).passed, "it should have been listed"
    with pytest.raises(Unprovable, match="only 3 of 36"):
        comparable(questions, [unlikely] * 33 + answers[33:], 99)
