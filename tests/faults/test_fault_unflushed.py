"""Agents that end with spans of their own unsent: the gateway's calls are all there, and nothing hangs."""

import socket
from collections.abc import Iterator

import pytest

from leyden_contracts import EpisodeRules, RunSpec, TaskInput, Trajectory, Verdict, new_run_id
from leyden_storage.trajectories import stored_trajectories
from support.faults import BASE_MODEL, Fleet
from support.loop import stored

CALLS = 2


@pytest.fixture
def deaf() -> Iterator[str]:
    """The URL of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def play(fleet: Fleet, **task: str) -> Trajectory:
    """Run one episode; return its trajectory, which must have all calls."""
    spec = RunSpec(
        id=new_run_id(),
        base_model=BASE_MODEL,
        agent="instrumented:play",
        grader="scripted:content",
        episodes=EpisodeRules(timeout_s=120, max_attempts=1),
    )
    run = str(fleet.client.create_run(spec).spec.id)
    fleet.client.upload_tasks(run, [TaskInput(input=task)], purpose="eval", policy_version=0)
    assert fleet.outcome(run, 1) == {"succeeded": 1}
    (trajectory,) = stored_trajectories(stored(fleet.deployment), run)
    assert trajectory.verdict is Verdict.COMPLETE
    assert [call.number for call in trajectory.transitions] == list(range(1, CALLS + 1))
    return trajectory


def test_the_worker_flushes_what_the_agent_left(fleet: Fleet) -> None:
    assert [step.name for step in play(fleet, ends="flushed").steps] == ["look"] * CALLS


@pytest.mark.parametrize("ends", ["private", "exits"])
def test_spans_that_nobody_flushes_are_lost_and_the_calls_are_not(fleet: Fleet, ends: str) -> None:
    assert play(fleet, ends=ends).steps == ()


def test_an_endpoint_that_never_answers_holds_nothing_up(fleet: Fleet, deaf: str) -> None:
    assert play(fleet, ends="stuck", to=deaf).steps == ()
