"""CPU of the whole life of an episode that does nothing, against a stock Celery task that does nothing, with a result.

Ours: upload, ring, claim, agent and grader (each in a process of its own), close, trajectory, end. Task API, worker
with all its processes, collector, Redis and the client count. Celery's: publisher and prefork worker, and their Redis.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis
from ledger_enqueue import jsonl
from ledger_parts import HERE, api_client, cpu_seconds, middle, new_run, post, redis_process, service, show
from ledger_recovery import celery_worker, peer_environment

from leyden_client.client import LeydenClient
from support.servers import redis_server, wait_for

TARGET = 2
Milliseconds = dict[str, float]
"""Part -> CPU milliseconds for each episode, or task."""


@dataclass(frozen=True)
class Side:
    """Processes to measure, by name."""

    parts: dict[str, psutil.Process]

    def seconds(self) -> Milliseconds:
        """Return the CPU seconds so far."""
        return {name: cpu_seconds([top]) for name, top in self.parts.items()}


@contextmanager
def our_side(folder: Path) -> Iterator[tuple[Side, str]]:
    """Run our services; yields them and the API's URL."""
    with (
        redis_server(folder / "redis", appendonly=True) as redis_url,
        redis.Redis.from_url(redis_url) as client,
        service("task_api", folder, redis_url) as (api, url),
        service("collector", folder, redis_url, grpc_port=0) as (collector, _),
        service("worker", folder, redis_url, agent_path=HERE) as (worker, _),
    ):
        yield Side({"redis": redis_process(client), "task_api": api, "collector": collector, "worker": worker}), url


def our_round(side: Side, client: LeydenClient, url: str, count: int) -> Milliseconds:
    """Play `count` episodes of a run."""
    run = new_run(client)
    _play(client, url, run, 4, "warm")
    before, own = side.seconds(), time.thread_time()
    _play(client, url, run, count, "measured")
    after, own = side.seconds(), time.thread_time() - own
    client.cancel_run(run)
    return {name: (after[name] - before[name]) / count * 1000 for name in after} | {"client": own / count * 1000}


def _play(client: LeydenClient, url: str, run: str, count: int, name: str) -> None:
    def ended() -> int:
        counts: Counter[str] = Counter(client.run(run).summary.counts)
        return counts["eval:succeeded"]

    goal = ended() + count
    post(f"{url}/v1/runs/{run}/tasks?purpose=eval&samples=1", jsonl(count).replace(b"What", name.encode()))
    end = time.monotonic() + 240
    while ended() < goal:
        if time.monotonic() > end:
            raise SystemExit(f"{ended()} of {goal} episodes succeeded")
        time.sleep(0.25)


@contextmanager
def celery_side(folder: Path) -> Iterator[tuple[Side, dict[str, str]]]:
    """Run a stock Celery worker; yields it and the environment of its publishers."""
    with redis_server(folder / "redis", appendonly=True) as redis_url, redis.Redis.from_url(redis_url) as client:
        environment = peer_environment(redis_url) | {"PEER_RESULTS": f"{redis_url}/1"}
        with celery_worker(folder, environment, 2) as worker:
            wait_for(lambda: any(one["cmd"] == "brpop" for one in client.client_list()), 90, "Celery's worker")
            yield Side({"redis": redis_process(client), "worker": worker}), environment


def celery_round(side: Side, environment: dict[str, str], count: int) -> Milliseconds:
    """Publish `count` tasks and fetch their results."""
    before = side.seconds()
    command = [sys.executable, str(HERE / "peers/stock_celery.py"), "results", str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    after = side.seconds()
    publisher = json.loads(done.stdout)["cpu"] / count * 1000
    return {name: (after[name] - before[name]) / count * 1000 for name in after} | {"publisher": publisher}


def measure(count: int, rounds: int) -> list[tuple[Milliseconds, Milliseconds]]:
    """Take turns; return what each round cost us, and Celery."""
    with (
        tempfile.TemporaryDirectory() as ours,
        tempfile.TemporaryDirectory() as theirs,
        our_side(Path(ours)) as (side, url),
        api_client(url) as client,
        celery_side(Path(theirs)) as (peer, environment),
    ):
        return [(our_round(side, client, url, count), celery_round(peer, environment, count)) for _ in range(rounds)]


def report(count: int, rounds: int) -> None:
    """Measure and print."""
    found = measure(count, rounds)
    ratio = middle(sum(ours.values()) / sum(theirs.values()) for ours, theirs in found)
    totals = [middle(sum(side.values()) for side in sides) for sides in zip(*found, strict=True)]
    show("cpu_vs_celery_task", ratio, "ratio of CPU seconds", TARGET, 1)
    show("cpu_ms_per_episode", totals[0], "ms", baseline=totals[1])
    for side, prefix in zip(zip(*found, strict=True), ("cpu_ms_per_episode", "cpu_ms_per_celery_task"), strict=True):
        for part in side[0]:
            show(f"{prefix}.{part}", middle(one[part] for one in side), "ms")
