"""A replica is lost with 200 calls in flight: no agent notices, and every call is in its trajectory once."""

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage.trajectories import stored_trajectories
from support.faults import BASE_MODEL, TESTS, Fleet, fleet_in, lines, until
from support.loop import stored
from support.servers import find_port
from support.worker import answers

CALLS = 200
PATIENT = {"LEYDEN_WORKER_LEASE_S": "30", "LEYDEN_TASK_API_TRACE_GRACE_S": "30"}
"""200 agents that start and call at once make a small machine late; that is not what is tested here."""
LOST = 'leyden_gateway_replica_failures_total{kind="connection",replica="replica-a"}'


@contextmanager
def replica(name: str, calls: Path, gate: Path) -> Iterator[tuple[subprocess.Popen[bytes], ReplicaStatus]]:
    """Run a model that tells of its calls in a file, and answers them when the gate is open."""
    port = find_port()
    model = [str(TESTS / "bench/free_model.py"), str(port), str(calls), str(gate)]
    child = subprocess.Popen([sys.executable, *model])
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{url}/v1/models"), 30, name)
        yield child, ReplicaStatus(id=name, url=url, base_model=BASE_MODEL)
    finally:
        child.kill()
        child.wait()


def told(calls: Path) -> int:
    """Return how many calls a replica was given."""
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def announce(fleet: Fleet, *replicas: ReplicaStatus) -> None:
    """Have these replicas, and no other."""

    async def tell() -> None:
        ledger = Ledger.connect(fleet.deployment.redis_url)
        await ledger.replicas.leave("replica-0")
        for one in replicas:
            await ledger.replicas.beat(one, 3600)
        await ledger.aclose()

    asyncio.run(tell())


def metric(fleet: Fleet, name: str) -> float:
    """Return the sum of one of the gateway's metrics."""
    with urllib.request.urlopen(f"{fleet.deployment.url('gateway')}/metrics", timeout=60) as answer:
        found = [line for line in answer.read().decode().splitlines() if line.startswith(name)]
    return sum(float(line.rpartition(" ")[2]) for line in found)


@pytest.mark.timeout(300)
def test_a_replica_is_lost_with_200_calls_in_flight(tmp_path: Path) -> None:
    gate, answer, note = tmp_path / "gate", tmp_path / "answer", tmp_path / "statuses"
    held, others = tmp_path / "held", tmp_path / "others"
    with (
        replica("replica-a", held, tmp_path / "never") as (victim, first),
        replica("replica-b", others, answer) as (_, second),
        fleet_in(tmp_path / "fleet", PATIENT, worker_concurrency=CALLS) as fleet,
    ):
        announce(fleet, first, second)
        ready = tmp_path / "ready"
        steps = [{"tell": str(ready)}, {"await": str(gate)}, {"call_once": str(note)}]
        run = fleet.new_run([steps] * CALLS, max_attempts=1, timeout_s=200)
        until(lambda: len(lines(ready)) == CALLS, 120, "the agents")
        gate.touch()
        until(lambda: told(held) + told(others) == CALLS, 60, f"{CALLS} calls with the replicas")
        lost = told(held)
        assert lost > CALLS / 4, "the replicas shared the calls"
        victim.kill()
        until(lambda: told(others) == CALLS, 60, "calls that moved")
        assert metric(fleet, LOST) == lost
        answer.touch()
        assert fleet.outcome(run, CALLS) == {"succeeded": CALLS}
        assert [status for (status,) in lines(note)] == ["200"] * CALLS
        results = list(stored_trajectories(stored(fleet.deployment), run))
        assert {(result.attempt, len(result.transitions)) for result in results} == {(1, 1)}
        assert {call.replica for result in results for call in result.transitions} == {"replica-b"}
