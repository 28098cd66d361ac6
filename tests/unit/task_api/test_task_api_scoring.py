"""What an evaluation's episodes are worth, and what follows for the promoted version."""

import math

import pytest

from leyden_contracts import Episode, Evaluation, Promotion
from leyden_task_api.scoring import decide, interval, judge


def episode(number: int, reward: float | None, state: str = "succeeded", version: int | None = 3) -> Episode:
    return Episode.model_validate(
        {
            "id": f"t-b-{number}.0",
            "run": "mine",
            "group": f"t-b-{number}",
            "index": 0,
            "task": "t",
            "purpose": "eval",
            "state": state,
            "attempt": 1,
            "calls": 1,
            "reward": reward,
            "policy_version": version,
        }
    )


def result(version: int, score: float | None) -> Evaluation:
    return Evaluation(run="mine", version=version, batch="b", counts={}, score=score, created=0)


def promotion(version: int, number: int = 1, floor: int = -1) -> Promotion:
    return Promotion(run="mine", number=number, version=version, cause="person", floor=floor, created=0)


def scores(**by_version: float | None) -> dict[int, Evaluation]:
    return {int(name[1:]): result(int(name[1:]), score) for name, score in by_version.items()}


def test_the_score_is_the_mean_of_those_that_succeeded_and_failures_are_no_zeros() -> None:
    episodes = [episode(n, 0.5) for n in range(19)] + [episode(19, None, "failed")]
    judged = judge("mine", 3, "b", episodes, 20, 7.0)
    assert judged.score == 0.5 and judged.reason is None
    assert judged.counts == {"succeeded": 19, "failed": 1}
    assert judged.interval == (0.5, 0.5)


@pytest.mark.parametrize(("failed", "scored"), [(2, True), (3, False)])
def test_with_less_than_nine_in_ten_there_is_no_score_but_a_reason(failed: int, scored: bool) -> None:
    episodes = [episode(n, 1.0) for n in range(20 - failed)]
    episodes += [episode(20 - n, None, "timed_out") for n in range(failed)]
    judged = judge("mine", 3, "b", episodes, 20, 0)
    assert (judged.score is not None) == scored and (judged.interval is not None) == scored
    assert judged.counts == {"succeeded": 20 - failed, "timed_out": failed}
    if not scored:
        assert judged.reason == "17 of 20 episodes succeeded; a score needs 90%"


def test_episodes_that_were_never_made_count_as_cancelled() -> None:
    judged = judge("mine", 3, "b", [], 5, 0)
    assert judged.counts == {"cancelled": 5} and judged.score is None and judged.reason


def test_an_episode_on_another_version_spoils_the_score() -> None:
    judged = judge("mine", 3, "b", [episode(1, 1.0), episode(2, 1.0, version=2)], 2, 0)
    assert judged.score is None and judged.reason == "t-b-2.0 and 0 more ran on another version (2)"


def test_intervals() -> None:
    assert interval([[1.0]]) is None
    # Wilson, 8 of 10: Brown, Cai and DasGupta (2001), and scipy's binomtest, have 0.4902 to 0.9433.
    low, high = interval([[1.0]] * 8 + [[0.0]] * 2) or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    low, high = interval([[1.0]] * 10) or (0, 0)
    assert low < 0.75 and high == 1.0
    low, high = interval([[0.2], [0.4], [0.9]]) or (0, 0)
    half = 1.959964 * math.sqrt(0.13 / 3)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half))
    alike = interval([[0.2, 0.2], [0.4, 0.4], [0.9, 0.9]]) or (0, 0)
    assert alike == pytest.approx((low, high)), "the same again is no new evidence"


@pytest.mark.parametrize(
    ("history", "results", "promoted"),
    [
        ([], scores(v0=0.1), 0),
        ([], scores(v0=None), None),
        ([], {}, None),
        ([promotion(0)], scores(v0=0.1, v2=0.3, v4=0.2), 2),
        ([promotion(2)], scores(v0=0.1, v2=0.3, v4=0.3), None),
        ([promotion(4)], scores(v0=0.1, v2=0.3, v4=0.3), 2),
        ([promotion(0)], scores(v0=0.1, v2=None), None),
        ([promotion(0)], scores(v0=None, v2=0.1), 2),
        ([promotion(5)], scores(v0=0.9), None),
        ([promotion(5)], scores(v0=0.5, v5=0.4), 0),
        ([promotion(0, floor=4)], scores(v0=0.1, v2=0.5, v4=0.9), None),
        ([promotion(0, floor=4)], scores(v0=0.1, v2=0.5, v4=0.9, v6=0.2), 6),
    ],
    ids=[
        "first",
        "no score yet",
        "no results",
        "best",
        "a tie keeps the older one",
        "whichever came in first",
        "none is not zero",
        "any score beats none",
        "what a person chose is evaluated first",
        "and then compared",
        "a person's word stands",
        "until something newer is better",
    ],
)
def test_what_is_promoted(history: list[Promotion], results: dict[int, Evaluation], promoted: int | None) -> None:
    assert decide(history, results) == promoted
