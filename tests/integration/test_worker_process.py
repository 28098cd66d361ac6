"""`python -m leyden_worker` as a process: rung by Celery, stopped, killed, and cut off from Redis."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from leyden_contracts import EpisodeState, FailureReason
from leyden_ledger import Ledger
from leyden_runtime.doorbell import make_celery, ring
from leyden_storage import LocalStore
from support.servers import find_port, redis_server
from support.worker import RUN, alive, descendants, enter, noted, running, worker_process


@pytest.fixture
def worker(redis_url: str, tmp_path: Path, signing_key: str, free_port: int) -> Iterator[Popen]:
    with worker_process(redis_url, tmp_path, signing_key, free_port, CONCURRENCY="8", LEASE_S="3") as process:
        yield process


async def counts(ledger: Ledger) -> dict[str, int]:
    return (await ledger.runs.summary(RUN)).counts


async def until(condition: Callable[[], Any], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def call_all(redis_url: str, episodes: list[str]) -> None:
    await asyncio.to_thread(ring, make_celery(redis_url), [(RUN, episode) for episode in episodes])


async def test_rung_episodes_are_run_and_counted(
    worker: Popen, ledger: Ledger, store: LocalStore, redis_url: str, free_port: int
) -> None:
    good = await enter(ledger, store, "echo", list(range(20)))
    await call_all(redis_url, good)

    async def all_closed() -> bool:
        return (await counts(ledger)).get("eval:collecting") == 20

    await until(all_closed)
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics") as response:
        metrics = response.read().decode()
    assert 'leyden_worker_attempts_total{outcome="graded",reason=""} 20.0' in metrics
    assert "leyden_worker_running 0.0" in metrics
    assert 'leyden_worker_attempt_seconds_count{outcome="graded"} 20.0' in metrics


async def test_an_attempt_of_no_work_costs_little(
    redis_url: str, ledger: Ledger, store: LocalStore, tmp_path: Path, signing_key: str, free_port: int
) -> None:
    (tmp_path / "idle.py").write_text("import openai\ndef agent(value): return value\ndef grade(t, o): return 1\n")
    episodes = await enter(ledger, store, "idle:agent", list(range(232)), grader="idle:grade")

    async def closed() -> int:
        return (await counts(ledger)).get("eval:collecting", 0)

    async def run_all(part: list[str]) -> None:
        before = await closed()
        await call_all(redis_url, part)
        async with asyncio.timeout(60):
            while await closed() < before + len(part):
                await asyncio.sleep(0.1)

    with worker_process(redis_url, tmp_path, signing_key, free_port) as worker:
        await run_all(episodes[:32])
        cpu_s, begun = _cpu_s(worker.pid), time.monotonic()
        await run_all(episodes[32:])
        cpu_ms = (_cpu_s(worker.pid) - cpu_s) * 1000 / 200
        wall_ms = (time.monotonic() - begun) * 1000 / 200
    print(f"worker.noop_attempt_cpu_ms {cpu_ms:.1f} (two forks), wall {wall_ms:.1f} ms, concurrency 32")
    # 18 to 24 measured on a machine with a load of 8; a fresh interpreter with `openai` costs about 1,000.
    assert cpu_ms < 60


def _cpu_s(pid: int) -> float:
    """CPU seconds of a worker, its warm parents, and all children that have ended."""
    total = 0
    for process in {pid} | descendants(pid):
        total += sum(
            int(ticks) for ticks in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
        )
    return total / os.sysconf("SC_CLK_TCK")


async def test_no_more_rings_are_taken_than_can_be_answered(
    worker: Popen, ledger: Ledger, store: LocalStore, redis_url: str
) -> None:
    episodes = await enter(ledger, store, "sleeps", [2000] * 40, timeout_s=3000)
    await call_all(redis_url, episodes)

    async def all_busy() -> bool:
        return (await counts(ledger)).get("eval:running") == 8

    await until(all_busy)
    await asyncio.sleep(1)
    assert (await counts(ledger))["eval:running"] == 8
    # One more may be under way: the request for it was out before the last thread was taken.
    assert await ledger.redis.llen("leyden") >= 31


async def test_a_full_worker_hears_the_next_ring_as_soon_as_it_can(
    redis_url: str, ledger: Ledger, store: LocalStore, tmp_path: Path, signing_key: str, free_port: int
) -> None:
    episodes = await enter(ledger, store, "echo", list(range(16)))

    async def closed() -> int:
        return (await counts(ledger)).get("eval:collecting", 0)

    with worker_process(redis_url, tmp_path, signing_key, free_port, CONCURRENCY="1"):
        await call_all(redis_url, episodes)
        await until(closed)
        begun = time.monotonic()
        while await closed() < 16:
            await asyncio.sleep(0.05)
    # Celery's loop alone would look once a second.
    assert time.monotonic() - begun < 7


async def test_sigterm_gives_back_and_leaves_no_process(
    worker: Popen, ledger: Ledger, store: LocalStore, redis_url: str, tmp_path: Path
) -> None:
    notes = [tmp_path / f"pids{number}" for number in range(3)]
    episodes = await enter(ledger, store, "hangs_with_a_family", [str(note) for note in notes], timeout_s=2000)
    await call_all(redis_url, episodes)
    await until(lambda: all(len(noted(note)) == 4 for note in notes), 30)
    below = descendants(worker.pid)
    begun = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 20) == 0
    assert time.monotonic() - begun < 8
    await until(lambda: not running([*below, *(pid for note in notes for pid in noted(note))]), 3)
    for episode in episodes:
        assert (await ledger.episodes.get(RUN, episode)).state is EpisodeState.QUEUED
        assert await ledger.episodes.claim(RUN, episode, "another", 10) is not None


async def test_sigkill_leaves_no_process_and_the_lease_runs_out(
    worker: Popen, ledger: Ledger, store: LocalStore, redis_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    (episode,) = await enter(ledger, store, "hangs_with_a_family", [str(note)], timeout_s=2000, max_attempts=2)
    await call_all(redis_url, [episode])
    await until(lambda: len(noted(note)) == 4, 30)
    below = descendants(worker.pid)
    assert len(below) >= 2
    worker.kill()
    await until(lambda: not running([*below - {worker.pid}, *noted(note)]), 3)

    async def expired() -> bool:
        return await ledger.episodes.expire(RUN, 60) == 1

    await until(expired, 6)
    assert (await ledger.episodes.get(RUN, episode)).state is EpisodeState.QUEUED


async def test_an_agent_dies_with_its_warm_parent_even_if_no_worker_can_see_to_it(
    worker: Popen, ledger: Ledger, store: LocalStore, redis_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    (episode,) = await enter(ledger, store, "sleeps_noting_pid", [[str(note), 1000]], timeout_s=2000)
    await call_all(redis_url, [episode])
    await until(lambda: noted(note), 30)
    below = descendants(worker.pid)
    worker.send_signal(signal.SIGSTOP)
    for parent in below - set(noted(note)):
        os.kill(parent, signal.SIGKILL)
    await until(lambda: not alive(noted(note)), 3)
    worker.kill()


async def test_a_killed_warm_parent_leaves_nothing_and_its_attempt_can_be_made_again(
    worker: Popen, ledger: Ledger, store: LocalStore, redis_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    (episode,) = await enter(ledger, store, "hangs_with_a_family", [str(note)], timeout_s=2000, max_attempts=2)
    await call_all(redis_url, [episode])
    await until(lambda: len(noted(note)) == 4, 30)
    family = noted(note)
    (parent,) = (pid for pid in descendants(worker.pid) if _parent_of(pid) == worker.pid)
    os.kill(parent, signal.SIGKILL)
    await until(lambda: not running([parent, *family]), 6)

    async def failed_once() -> bool:
        return (await ledger.episodes.get(RUN, episode)).reason == FailureReason.INFRASTRUCTURE

    await until(failed_once)
    # As the dispatcher does, after the back-off.
    async with asyncio.timeout(20):
        while len(noted(note)) < 8:
            await call_all(redis_url, [episode])
            await asyncio.sleep(0.5)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_after_redis_was_away_rings_are_heard_again(tmp_path: Path, signing_key: str, free_port: int) -> None:
    port = find_port()
    store = LocalStore(tmp_path / "store")
    with redis_server(tmp_path / "redis", port, appendonly=True) as url:
        ledger = Ledger.connect(url)
        with worker_process(url, tmp_path, signing_key, free_port, LEASE_S="3"):
            episodes = await enter(ledger, store, "echo", [0])
            await call_all(url, episodes)

            async def closed() -> bool:
                return (await counts(ledger)).get("eval:collecting") == 1

            await until(closed)
            subprocess.run(["sh", "-c", f"kill -9 {_server_pid(port)}"], check=True)
            await asyncio.sleep(1)
            with redis_server(tmp_path / "redis", port, appendonly=True):
                episodes = await enter(ledger, store, "echo", [1], run="run-after")
                # As the dispatcher does: the ring may reach a connection that is about to break.
                async with asyncio.timeout(30):
                    while (await ledger.runs.summary("run-after")).counts.get("eval:collecting") != 1:
                        ring(make_celery(url), [("run-after", episodes[0])])
                        await asyncio.sleep(0.5)
        await ledger.aclose()


def _server_pid(port: int) -> int:
    import redis

    with redis.Redis(port=port) as client:
        return client.info("server")["process_id"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"LEYDEN_SIGNING_KEY": "short"}, "LEYDEN_SIGNING_KEY must have 32 characters"),
        ({"LEYDEN_WORKER_CONCURENCY": "3"}, "LEYDEN_WORKER_CONCURENCY: no such setting"),
        ({"LEYDEN_WORKER_LEASE_S": "soon"}, "LEYDEN_WORKER_LEASE_S"),
        ({"LEYDEN_STORE_URL": "ftp://nowhere"}, "settings:"),
    ],
)
def test_wrong_settings_are_refused(
    settings: dict[str, str], said: str, tmp_path: Path, signing_key: str, redis_url: str
) -> None:
    good = {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{tmp_path}",
        "LEYDEN_SIGNING_KEY": signing_key,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "leyden_worker"],
        env=os.environ | good | settings,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to become another user")
def test_an_agent_of_the_same_user_cannot_read_the_workers_environment(tmp_path: Path) -> None:
    # Kernel access checks do not hold for root, so both sides give it up first.
    code = (
        "import os, sys\nfrom leyden_worker import kernel\nos.setgid(65534)\nos.setuid(65534)\n"
        "kernel.hide(sys.argv[1] == 'hidden')\nworker = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    kernel.hide(False)\n"
        "    try: open(f'/proc/{worker}/environ').read(); os._exit(10)\n"
        "    except PermissionError: os._exit(11)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    ends = {how: subprocess.run([sys.executable, "-c", code, how]).returncode for how in ("hidden", "open")}
    assert ends == {"hidden": 11, "open": 10}


def test_the_worker_hides_itself_before_it_runs_anything(
    tmp_path: Path, signing_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leyden_worker import __main__ as program

    done: list[str] = []
    monkeypatch.setenv("LEYDEN_STORE_URL", f"file://{tmp_path}")
    monkeypatch.setenv("LEYDEN_SIGNING_KEY", signing_key)
    monkeypatch.setattr(program.kernel, "hide", lambda: done.append("hide"))
    monkeypatch.setattr(program.kernel, "adopt_orphans", lambda: None)
    monkeypatch.setattr(program, "configure_logs", lambda _: None)
    monkeypatch.setattr(program.asyncio, "run", lambda task: (task.close(), done.append("run"), 0)[2])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert (end.value.code, done) == (0, ["hide", "run"])
