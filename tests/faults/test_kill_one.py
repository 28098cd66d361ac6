"""kill -9 of each service in turn, while the loop runs: it finishes, and the checker is clean."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from leyden_standalone.supervisor import Supervisor
from support.loop import calls_in_log, calls_in_store, deployed, small_spec, stored, train_small, violations

VICTIMS = ("worker", "gateway", "collector", "engine", "learner", "adapter_loader", "task_api")
STEPS = 8


def _kill_in_turn(supervisor: Supervisor, killed: list[str], stop: threading.Event) -> None:
    for victim in VICTIMS:
        if stop.wait(4):
            return
        before = supervisor.pids[victim]
        os.kill(before, signal.SIGKILL)
        killed.append(victim)
        while supervisor.pids[victim] == before and not stop.wait(0.05):
            pass


@pytest.mark.timeout(600)
def test_kill_each_service(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    killed: list[str] = []
    stop = threading.Event()
    with deployed(tmp_path / "data", call_log=log) as (deployment, supervisor, client):
        killer = threading.Thread(target=_kill_in_turn, args=(supervisor, killed, stop))
        killer.start()
        try:
            result = train_small(client, small_spec(max_staleness=1), STEPS, tmp_path)
        finally:
            stop.set()
            killer.join()
        assert result.version == STEPS
        assert {"worker", "gateway", "collector", "engine", "learner"} <= set(killed)
        assert violations(deployment, result.run) == []
        transitions, logged = calls_in_store(stored(deployment), result.run), calls_in_log(log)
        assert transitions == {name: logged[name] for name in transitions}


def test_nothing_is_left_and_the_next_start_goes_on(tmp_path: Path) -> None:
    with deployed(tmp_path / "data") as (_, supervisor, client):
        run = train_small(client, small_spec(), 1, tmp_path).run
        pids = list(supervisor.pids.values())
    time.sleep(0.2)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with deployed(tmp_path / "data") as (deployment, _, client):
        assert client.run(run).summary.version_published == 1
        assert violations(deployment, run) == []
