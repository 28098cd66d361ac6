"""Redis is killed, restarted and hangs while episodes run."""

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import redis

from leyden_client.errors import ApiError
from leyden_ledger.recovery import ATTEMPTS_APART
from support.faults import CALLS, QUICK, Fleet, show_replica, until

SLOW_CALLS = [{"call": 1}, {"sleep": 0.5}, {"call": 1}]


def test_redis_is_killed_and_comes_back_with_its_log(fleet: Fleet) -> None:
    run = fleet.new_run([SLOW_CALLS] * 30, max_attempts=20)
    for pause in (1.0, 0.5):
        time.sleep(pause)
        fleet.kill("redis")
        time.sleep(pause)
        fleet.start("redis")
    assert fleet.outcome(run, 30) == {"succeeded": 30}


def test_callers_get_503_in_bounded_time_while_redis_hangs(fleet: Fleet) -> None:
    run = fleet.new_run([SLOW_CALLS] * 10, max_attempts=20)
    bound = float(QUICK["LEYDEN_TASK_API_ANSWER_WITHIN_S"])
    url, headers = fleet.deployment.url("task_api"), {"Authorization": f"Bearer {fleet.deployment.token}"}
    asks = [
        ("GET", f"/v1/runs/{run}", {}),
        ("GET", f"/v1/runs/{run}/episodes", {}),
        ("POST", f"/v1/runs/{run}/tasks?purpose=eval&policy_version=0", {"json": {"input": CALLS}}),
    ]
    with redis.Redis.from_url(fleet.deployment.redis_url) as client, httpx.Client(headers=headers) as http:
        client.execute_command("CLIENT", "PAUSE", 12000, "ALL")
        paused = time.monotonic()
        for method, path, more in asks:
            started = time.monotonic()
            answer = http.request(method, url + path, timeout=30, **more)
            waited = time.monotonic() - started
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
            # An upload takes as long as its body; each of its steps waits for Redis 5 s at the most.
            assert waited < (bound + 1 if method == "GET" else 7), path
        assert time.monotonic() - paused < 12
    # A client with patience outlasts the rest of the pause.
    assert fleet.upload(run, [CALLS]) == 1
    assert fleet.outcome(run, 11) == {"succeeded": 11}


def test_redis_is_emptied_and_the_ledger_is_recovered(fleet: Fleet) -> None:
    run = fleet.new_run([SLOW_CALLS] * 60, max_attempts=20)
    until(lambda: fleet.counts(run)["succeeded"] >= 10, what="the first ends")
    known = {episode.id for episode in fleet.episodes(run) if episode.state == "succeeded"}
    with redis.Redis.from_url(fleet.deployment.redis_url) as client:
        client.flushall()
    show_replica(fleet.deployment)
    with pytest.raises(ApiError, match=run):
        fleet.client.run(run)
    assert run in recover(fleet)
    assert "nothing to recover" in recover(fleet)
    assert {episode.id for episode in fleet.episodes(run) if episode.state == "succeeded"} >= known
    assert fleet.outcome(run, 60) == {"succeeded": 60}
    attempts = [episode.attempt for episode in fleet.episodes(run)]
    assert any(attempt > ATTEMPTS_APART for attempt in attempts), "unfinished ones ran again"
    assert any(attempt < ATTEMPTS_APART for attempt in attempts), "finished ones did not"


def recover(fleet: Fleet) -> str:
    """Run `leyden recover`; return what it says."""
    environment = os.environ | {
        "LEYDEN_REDIS_URL": fleet.deployment.redis_url,
        "LEYDEN_STORE_URL": fleet.deployment.store_url,
    }
    command = [str(Path(sys.executable).with_name("leyden")), "recover"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
