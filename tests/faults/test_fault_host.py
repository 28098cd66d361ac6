"""A worker host is lost with 200 running episodes: all run again on another within 15 s, none twice in the results."""

import json
from collections import Counter
from pathlib import Path

import pytest

from leyden_storage.trajectories import stored_trajectories
from support.faults import Fleet, fleet_in, lines, until
from support.loop import stored

EPISODES = 200
WITHIN_S = 15
DEFAULTS = {"LEYDEN_WORKER_LEASE_S": "5", "LEYDEN_TASK_API_RECONCILE_S": "0.5", "LEYDEN_TASK_API_RING_AGAIN_S": "10"}
"""Those waits that decide it, as users have them."""


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_host_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with fleet_in(tmp_path / "fleet", DEFAULTS, worker_concurrency=EPISODES) as fleet:
        seconds = lose_and_run_again(fleet, tmp_path)
    with capsys.disabled():
        figure = {"name": "faults.host_lost_s", "value": round(seconds, 1), "unit": "s", "target": WITHIN_S}
        print(f"\n{json.dumps(figure)}")
    assert seconds <= WITHIN_S


def lose_and_run_again(fleet: Fleet, folder: Path) -> float:
    """Return the seconds from the loss until every episode's agent runs again."""
    note, gate = folder / "started", folder / "gate"
    steps = [{"call": 1}, {"tell": str(note)}, {"await": str(gate)}, {"call": 1}]
    run = fleet.new_run([steps] * EPISODES, max_attempts=2, timeout_s=600)
    until(lambda: len(lines(note)) == EPISODES, 120, "the first attempts")
    fleet.start(fleet.twin("worker-2", "worker"))
    fleet.lose_host("worker")
    seconds = until(lambda: len(lines(note)) == 2 * EPISODES, 120, "the second attempts")
    assert Counter(attempt for _, attempt in lines(note)) == {"1": EPISODES, "2": EPISODES}
    gate.touch()
    assert fleet.outcome(run, EPISODES, 120) == {"succeeded": EPISODES}
    results = list(stored_trajectories(stored(fleet.deployment), run))
    assert len(results) == len({result.episode for result in results}) == EPISODES
    assert {(result.attempt, len(result.transitions)) for result in results} == {(2, 2)}
    return seconds
