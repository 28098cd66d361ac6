"""Redis is killed, restarted and hangs while episodes run."""

import time

import httpx
import redis

from support.faults import CALLS, QUICK, Fleet

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
