"""Workers and agents that die, hang, leave and come back."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from support.faults import CALLS, Fleet, lines, until
from support.worker import descendants


def test_an_attempt_that_comes_back_after_its_lease_is_fenced(fleet: Fleet, tmp_path: Path) -> None:
    started, gate, late = tmp_path / "started", tmp_path / "gate", tmp_path / "late"
    # The first attempt's agent is not stopped with its worker: it calls once more when another has the episode.
    steps = [{"call": 1}, {"tell": str(started)}, {"await": str(gate)}, {"call_once": str(late)}]
    run = fleet.new_run([steps])
    until(lambda: lines(started))
    os.kill(fleet.pid("worker"), signal.SIGSTOP)
    try:
        fleet.start(fleet.twin("worker-2", "worker"))
        until(lambda: len(lines(started)) == 2, what="the second attempt")
        gate.touch()
        assert fleet.outcome(run, 1) == {"succeeded": 1}
        until(lambda: len(lines(late)) == 2)
    finally:
        os.kill(fleet.pid("worker"), signal.SIGCONT)
    assert sorted(lines(late)) == [["200"], ["409"]]
    time.sleep(1)
    assert fleet.outcome(run, 1) == {"succeeded": 1}
    (episode,) = fleet.episodes(run)
    assert [(episode.attempt, episode.calls)] == [(2, 2)]
    assert fleet.client.trajectory(run, episode.id).attempt == 2
    # The one that lost goes on with other work.
    fleet.kill("worker-2")
    assert fleet.outcome(fleet.new_run([CALLS] * 3), 3) == {"succeeded": 3}


def test_a_poison_task_fails_and_its_neighbours_go_on(fleet: Fleet, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    poison = [{"call": 1}, {"tell": str(deaths)}, {"die": 1}]
    run = fleet.new_run([CALLS, CALLS, poison, CALLS, CALLS], max_attempts=3)
    assert fleet.outcome(run, 5) == {"succeeded": 4, "failed": 1}
    assert [attempt for _, attempt in lines(deaths)] == ["1", "2", "3"]
    failed = next(episode for episode in fleet.episodes(run) if episode.state == "failed")
    assert (failed.reason, failed.reward) == ("agent_error", None)
    assert {episode.attempt for episode in fleet.episodes(run) if episode is not failed} == {1, 3}


def test_a_hung_agent_is_killed_and_its_neighbours_go_on(fleet: Fleet) -> None:
    run = fleet.new_run([[{"hang": 1}], CALLS, CALLS], max_attempts=1, timeout_s=4)
    assert fleet.outcome(run, 3) == {"succeeded": 2, "timed_out": 1}


def test_agents_and_warm_parents_are_killed_at_random(fleet: Fleet) -> None:
    dice = random.Random(7)
    run = fleet.new_run([[{"call": 1}, {"sleep": 0.5}, {"call": 1}]] * 12, max_attempts=20)
    for _ in range(8):
        time.sleep(0.3)
        if below := sorted(descendants(fleet.pid("worker"))):
            os.kill(dice.choice(below), signal.SIGKILL)
    assert fleet.outcome(run, 12) == {"succeeded": 12}


def terminate_again_and_again(fleet: Fleet, times: int, seed: int) -> None:
    """SIGTERM the worker at random moments of its fetching: nothing is lost, and nothing waits for a lease."""
    dice = random.Random(seed)
    run, accepted = fleet.create(max_attempts=1, timeout_s=300), 0
    for number in range(times):
        accepted += fleet.upload(run, [[{"call": 1}, {"sleep": 0.3}, {"call": 1}]] * 12, key=f"batch-{number}")
        time.sleep(dice.uniform(0, 0.5))
        os.kill(fleet.pid("worker"), signal.SIGTERM)
        assert fleet.ended("worker", 15) == 0
        # With one attempt allowed, an episode that was not given back would end as failed.
        assert fleet.counts(run).keys() <= {"queued", "collecting", "succeeded"}
        fleet.start("worker", LEYDEN_WORKER_LEASE_S="60")
    assert fleet.outcome(run, accepted, 120) == {"succeeded": accepted}


def test_sigterm_while_it_fetches(fleet: Fleet) -> None:
    terminate_again_and_again(fleet, 2, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_sigterm_while_it_fetches_a_hundred_times(fleet: Fleet) -> None:
    terminate_again_and_again(fleet, 100, seed=2)
