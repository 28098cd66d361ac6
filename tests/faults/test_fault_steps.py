"""kill -9 at each step of an episode's way: every accepted episode ends once, and the checker is clean."""

import pytest

from leyden_runtime.failpoints import POINTS
from support.faults import CALLS, Fleet

ROUNDS = [
    ("task_api.stored", "worker.claimed", "gateway.replied", "collector.stored"),
    ("task_api.accepted", "worker.starting", "gateway.counted", "collector.noted"),
    ("task_api.due", "worker.agent_ended", "gateway.answering", "collector.written"),
    ("task_api.rung", "worker.closing"),
    ("worker.closed",),
]
"""Each kills one of each service's processes; all of them together hold every failpoint but the learner's."""


def kill_at(fleet: Fleet, points: tuple[str, ...], episodes: int) -> dict[str, int]:
    """Have each service killed at its point, start it again, and return how the episodes ended."""
    services = {point.partition(".")[0]: point for point in points}
    run = fleet.create()
    for service, point in services.items():
        fleet.start(service, f"{point}=kill", wait=False)
    for service in services:
        fleet.ready(service)
    with fleet.revived(services):
        assert fleet.upload(run, [CALLS] * episodes) == episodes
        return fleet.outcome(run, episodes)


@pytest.mark.parametrize("points", ROUNDS, ids="+".join)
def test_kill_one_of_each_service(fleet: Fleet, points: tuple[str, ...]) -> None:
    assert kill_at(fleet, points, 8) == {"succeeded": 8}


@pytest.mark.faults
@pytest.mark.parametrize("point", [point for point in POINTS if not point.startswith("learner.")])
def test_kill_at(fleet: Fleet, point: str) -> None:
    assert kill_at(fleet, (point,), 30) == {"succeeded": 30}


def test_the_rounds_miss_no_step() -> None:
    covered = {point for points in ROUNDS for point in points}
    assert covered == {point for point in POINTS if not point.startswith("learner.")}
