"""A worker is killed with -9 while it runs something: the seconds until that runs again on another worker.

Celery's answer depends on when the death falls between the sweeps of the other worker, which come every 100 s: here the
deaths are spread evenly over that time.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import redis
from ledger_parts import HERE, api_client, middle, new_run, service, show

from leyden_client.client import LeydenClient
from leyden_contracts import TaskInput
from support.servers import process, redis_server, wait_for

TARGET_S, TARGET = 10, 0.1
SWEEP_S = 100
AGES_S = (7, 40, 73)
"""Of the surviving worker, when the other dies: one sweep comes with its start, the next when it is about 90 s old."""
VISIBILITY_S = 5


def lines(path: Path) -> list[tuple[float, int]]:
    """Return when the task began, each time, and the pid above it."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(float(at), int(parent)) for at, parent in rows]


def kill_family(top: psutil.Process) -> float:
    """End a process and all below it at once, as when their machine dies; return when."""
    family = [top, *top.children(recursive=True)] if top.is_running() else []
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)
    return time.time()


def ours(rounds: int) -> list[float]:
    """Return the seconds of each death."""
    with (
        tempfile.TemporaryDirectory() as name,
        redis_server(Path(name) / "redis", appendonly=True) as redis_url,
        service("task_api", Path(name), redis_url) as (_, url),
        api_client(url) as client,
        ExitStack() as stack,
    ):
        workers, seconds = [], []
        for number in range(rounds):
            while len(workers) < 2:
                workers.append(stack.enter_context(_worker(Path(name), redis_url)))
            seconds.append(_our_death(Path(name) / f"note-{number}", client, workers, number))
        return seconds


def _our_death(note: Path, client: LeydenClient, workers: list[psutil.Process], number: int) -> float:
    run = new_run(client, agent="noop_agent:note")
    # Both have run the agent before, as workers in use have.
    _play_both(client, run, workers)
    client.upload_tasks(run, [TaskInput(input=str(note))], purpose="eval", samples=1)
    wait_for(lambda: bool(lines(note)), 60, "the attempt")
    holder = psutil.Process(lines(note)[0][1]).ppid()
    # Anywhere between two heartbeats.
    time.sleep(1 + 0.7 * number)
    died = kill_family(workers.pop([one.pid for one in workers].index(holder)))
    wait_for(lambda: len(lines(note)) > 1, 120, "the second attempt")
    client.cancel_run(run)
    return lines(note)[1][0] - died


@contextmanager
def _worker(folder: Path, redis_url: str) -> Iterator[psutil.Process]:
    with service("worker", folder, redis_url, agent_path=HERE, concurrency=2) as (top, _):
        yield top


def _play_both(client: LeydenClient, run: str, workers: list[psutil.Process]) -> None:
    number = 0
    known = {one.pid: set(one.children()) for one in workers}
    while any(len(set(one.children()) - known[one.pid]) < 2 for one in workers):
        client.upload_tasks(run, [TaskInput(input="")] * 4, purpose="eval", samples=1, key=f"{run}-{number}")
        number += 1
        time.sleep(0.5)


def celery() -> list[float]:
    """Return the seconds of each death with stock Celery: late acknowledgement, visibility timeout 5 s."""
    with (
        tempfile.TemporaryDirectory() as name,
        redis_server(Path(name) / "redis", appendonly=True) as redis_url,
        ThreadPoolExecutor(len(AGES_S)) as pool,
    ):
        jobs = enumerate(AGES_S)
        return list(pool.map(lambda job: _celery_death(Path(name), f"{redis_url}/{job[0]}", job[1]), jobs))


def _celery_death(folder: Path, redis_url: str, age_s: float) -> float:
    note = folder / f"note-{age_s}"
    environment = peer_environment(redis_url) | {"PEER_VISIBILITY_S": str(VISIBILITY_S)}
    since: dict[psutil.Process, float] = {}
    with ExitStack() as stack, redis.Redis.from_url(redis_url) as client:
        for number in (1, 2):
            worker = stack.enter_context(celery_worker(folder, environment, 1))
            wait_for(lambda enough=number: _listening(client, enough), 90, "Celery's worker")
            since[worker] = time.time()
        # Sent as late as can be: a sweep would hand out what runs for longer than the visibility timeout.
        _publish(environment, note, max(since.values()) + age_s - 3)
        wait_for(lambda: bool(lines(note)), 60, "Celery's task")
        holder = next(one for one in since if one.pid == lines(note)[0][1])
        survivor = next(one for one in since if one is not holder)
        time.sleep(max(since[survivor] + age_s - time.time(), 0))
        died = kill_family(holder)
        wait_for(lambda: len(lines(note)) > 1, 3 * SWEEP_S, "Celery's second try")
        return lines(note)[1][0] - died


def _listening(client: redis.Redis, workers: int) -> bool:
    database = client.connection_pool.connection_kwargs["db"]
    waiting = [one for one in client.client_list() if one["cmd"] == "brpop" and int(one["db"]) == database]
    return len(waiting) >= workers


def peer_environment(redis_url: str) -> dict[str, str]:
    """Return what stock Celery's processes need."""
    return {**os.environ, "PEER_BROKER": redis_url, "PYTHONPATH": str(HERE / "peers")}


@contextmanager
def celery_worker(folder: Path, environment: dict[str, str], concurrency: int) -> Iterator[psutil.Process]:
    """Run a stock worker, as its command starts it."""
    command = [sys.executable, "-m", "celery", "-A", "stock_celery", "worker", "-l", "warning"]
    command += ["-c", str(concurrency), "-n", f"{time.monotonic_ns()}@%h"]
    with process(command, folder / "celery.log", stop_s=0.2, env=environment, start_new_session=True) as child:
        top = psutil.Process(child.pid)
        try:
            yield top
        finally:
            kill_family(top)


def _publish(environment: dict[str, str], note: Path, at: float) -> None:
    command = [sys.executable, str(HERE / "peers/stock_celery.py"), "note", str(note)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as publisher:
        time.sleep(max(at - time.time(), 0))
        publisher.communicate(timeout=60)


def report(theirs: list[float], rounds: int) -> None:
    """Measure ours and print both."""
    found = ours(rounds)
    show("recovery_s", middle(found), "s from kill -9 to running again", TARGET_S, middle(theirs))
    show("recovery_worst_s", max(found), "s", baseline=max(theirs))
    show("recovery_vs_celery", middle(found) / middle(theirs), "ratio of seconds", TARGET, 1)
