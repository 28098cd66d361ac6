"""kill -9 at each step of an episode's way: every accepted episode ends once, and the checker is clean."""

import time

import pytest

from leyden_runtime.failpoints import POINTS
from support.faults import CALLS, Fleet

# Not on an episode's way: the learner's steps, and those of evaluation and promotion, have tests of their own.
ELSEWHERE = ("learner.", "task_api.evaluat", "task_api.promoted")
PLACES = [point for point in POINTS if not point.startswith(ELSEWHERE)]


def play_while_killed(fleet: Fleet, points: list[str]) -> None:
    """Upload until every point has killed its service: every episode succeeds, and there are no others."""
    accepted = 0
    with fleet.killed_at(points) as all_killed:
        run = fleet.create(max_attempts=20)
        while not all_killed():
            accepted += fleet.upload(run, [CALLS] * 3, key=f"batch-{accepted}")
            time.sleep(0.5)
    assert fleet.outcome(run, accepted) == {"succeeded": accepted}
    assert len(fleet.episodes(run)) == accepted


@pytest.mark.timeout(400)
def test_killed_at_every_step(fleet: Fleet) -> None:
    play_while_killed(fleet, PLACES)


@pytest.mark.faults
@pytest.mark.parametrize("point", PLACES)
def test_killed_at_one_step(fleet: Fleet, point: str) -> None:
    play_while_killed(fleet, [point])
