"""Tasks accepted durably and rung for, against Celery's own `.delay()` into the same Redis."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import redis
from ledger_parts import HERE, api_client, middle, new_run, post, service, show

from leyden_runtime.doorbell import QUEUE
from support.servers import redis_server

TARGET = 15


@dataclass(frozen=True)
class Rates:
    """Of one round, tasks per second."""

    ours: float
    delay: float


def jsonl(count: int) -> bytes:
    """Return tasks as people write them."""
    rows = ({"input": f"What is {number} + 12345?", "expected": number + 12345} for number in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def delay_rate(redis_url: str, count: int) -> float:
    """Return how many tasks a second a `.delay()` loop publishes."""
    environment = {**os.environ, "PEER_BROKER": f"{redis_url}/1"}
    command = [sys.executable, str(HERE / "peers/stock_celery.py"), "publish", str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return count / json.loads(done.stdout)["seconds"]


def our_rate(redis_url: str, url: str, count: int, body: bytes) -> float:
    """Return how many tasks a second are stored, registered, entered and rung for: first byte to last ring."""
    with redis.Redis.from_url(redis_url) as client, api_client(url) as api:
        run = new_run(api)
        started = time.perf_counter()
        post(f"{url}/v1/runs/{run}/tasks?purpose=eval&samples=1", body)
        while client.llen(QUEUE) < count:
            if time.perf_counter() - started > 300:
                raise SystemExit(f"{client.llen(QUEUE)} of {count} tasks were rung for")
            time.sleep(0.01)
        seconds = time.perf_counter() - started
        client.flushall()
    return count / seconds


def measure(count: int, rounds: int) -> list[Rates]:
    """Take turns; return the rates of each round."""
    ahead = {"rings_ahead": count, "episodes_ahead": 2 * count, "ring_again_s": 3600}
    body, found = jsonl(count), []
    with (
        tempfile.TemporaryDirectory() as name,
        redis_server(Path(name) / "redis", appendonly=True) as redis_url,
        service("task_api", Path(name), redis_url, **ahead) as (_, url),
    ):
        with redis.Redis.from_url(redis_url) as client:
            # A log of 64 MB is rewritten in the background: a cost that would fall on whoever happens to write then.
            client.config_set("auto-aof-rewrite-percentage", 0)
        for _ in range(rounds):
            peer = delay_rate(redis_url, max(count // 20, 500))
            found.append(Rates(our_rate(redis_url, url, count, body), peer))
    return found


def report(count: int, rounds: int) -> None:
    """Measure and print."""
    found = measure(count, rounds)
    ratio = middle(rates.ours / rates.delay for rates in found)
    ours, delay = middle(rates.ours for rates in found), middle(rates.delay for rates in found)
    show("enqueue_vs_delay", ratio, "ratio of durable tasks/s to delay() tasks/s", TARGET, 1)
    show("enqueue_per_s", ours, "tasks/s", baseline=delay)
