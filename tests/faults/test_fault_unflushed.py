"""Agents that end with spans of their own unsent: the gateway's calls are all there, and nothing hangs."""

import socket
from collections.abc import Iterator

import pytest

from leyden_contracts import EpisodeRules, RunSpec, TaskInput, Trajectory, Verdict, new_run_id
from leyden_storage.trajectories import stored_trajectories
from support.faults import BASE_MODEL, Fleet
from support.loop import stored
from support.spans import spans_of

CALLS = 2
TOOL = "execute_tool look"


@pytest.fixture
def deaf() -> Iterator[str]:
    """The URL of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def play(fleet: Fleet, **task: str) -> tuple[Trajectory, list[str]]:
    """Run one episode; return its trajectory, and the names of the agent's own spans that were stored."""
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
    store = stored(fleet.deployment)
    (trajectory,) = stored_trajectories(store, run)
    spans = spans_of(*(store.get(key) for key in store.list(f"runs/{run}/segments/")))
    return trajectory, [span.name for span in spans if span.name == TOOL]


def check_calls(trajectory: Trajectory) -> None:
    assert trajectory.verdict is Verdict.COMPLETE
    assert [call.number for call in trajectory.transitions] == list(range(1, CALLS + 1))


def test_the_worker_flushes_what_the_agent_left(fleet: Fleet) -> None:
    trajectory, tools = play(fleet, ends="flushed")
    check_calls(trajectory)
    assert tools == [TOOL] * CALLS


@pytest.mark.parametrize("ends", ["private", "exits"])
def test_spans_that_nobody_flushes_are_lost_and_the_calls_are_not(fleet: Fleet, ends: str) -> None:
    trajectory, tools = play(fleet, ends=ends)
    check_calls(trajectory)
    assert tools == []


def test_an_endpoint_that_never_answers_holds_nothing_up(fleet: Fleet, deaf: str) -> None:
    trajectory, tools = play(fleet, ends="stuck", to=deaf)
    check_calls(trajectory)
    assert tools == []
