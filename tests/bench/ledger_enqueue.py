"""Tasks accepted durably and rung for, against Celery's own `.delay()` into the same Redis."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis
from ledger_parts import HERE, api_client, cpu_seconds, middle, new_run, post, redis_process, service, show

from leyden_runtime.doorbell import QUEUE
from support.servers import redis_server

TARGET = 15


@dataclass(frozen=True)
class Cost:
    """Of one task, on one side, in one round."""

    seconds: float
    cpu: float
    """Seconds of CPU: task API, or the publisher; and Redis."""


def jsonl(count: int) -> bytes:
    """Return tasks as people write them."""
    rows = ({"input": f"What is {number} + 12345?", "expected": number + 12345} for number in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def delay_cost(redis_url: str, server: psutil.Process, count: int) -> Cost:
    """Publish `count` tasks in a `.delay()` loop."""
    environment = {**os.environ, "PEER_BROKER": f"{redis_url}/1"}
    command = [sys.executable, str(HERE / "peers/stock_celery.py"), "publish", str(count)]
    before = cpu_seconds([server])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    spent = json.loads(done.stdout)
    return Cost(spent["seconds"] / count, (spent["cpu"] + cpu_seconds([server]) - before) / count)


def our_cost(client: redis.Redis, url: str, processes: list[psutil.Process], count: int, body: bytes) -> Cost:
    """Have `count` tasks stored, registered, entered and rung for: first byte to last ring."""
    with api_client(url) as api:
        run = new_run(api)
    before, started = cpu_seconds(processes), time.perf_counter()
    post(f"{url}/v1/runs/{run}/tasks?purpose=eval&samples=1", body)
    while client.llen(QUEUE) < count:
        if time.perf_counter() - started > 300:
            raise SystemExit(f"{client.llen(QUEUE)} of {count} tasks were rung for")
        time.sleep(0.01)
    cost = Cost((time.perf_counter() - started) / count, (cpu_seconds(processes) - before) / count)
    client.flushall()
    return cost


def measure(count: int, rounds: int) -> list[tuple[Cost, Cost]]:
    """Take turns; return our cost and Celery's of each round."""
    ahead = {"rings_ahead": count, "episodes_ahead": 2 * count, "ring_again_s": 3600}
    body, found = jsonl(count), []
    with (
        tempfile.TemporaryDirectory() as name,
        redis_server(Path(name) / "redis", appendonly=True) as redis_url,
        redis.Redis.from_url(redis_url) as client,
        service("task_api", Path(name), redis_url, **ahead) as (api, url),
    ):
        # A log of 64 MB is rewritten in the background: a cost that would fall on whoever happens to write then.
        client.config_set("auto-aof-rewrite-percentage", 0)
        server = redis_process(client)
        for _ in range(rounds):
            peer = delay_cost(redis_url, server, max(count // 20, 500))
            found.append((our_cost(client, url, [api, server], count, body), peer))
    return found


def report(count: int, rounds: int) -> None:
    """Measure and print."""
    found = measure(count, rounds)
    ours, delay = (1 / middle(side.seconds for side in sides) for sides in zip(*found, strict=True))
    show(
        "enqueue_vs_delay",
        middle(delay.seconds / ours.seconds for ours, delay in found),
        "ratio of durable tasks/s to delay() tasks/s",
        TARGET,
        1,
    )
    show("enqueue_per_s", ours, "tasks/s", baseline=delay)
    cpu, peer = (middle(side.cpu for side in sides) * 1e6 for sides in zip(*found, strict=True))
    show("enqueue_us_of_cpu", cpu, "us of CPU a task, Redis included", baseline=peer)
