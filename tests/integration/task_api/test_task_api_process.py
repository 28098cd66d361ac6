"""The process: `python -m leyden_task_api` starts by environment alone, rings, and stops cleanly."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from leyden_client import LeydenClient
from leyden_contracts import RunSpec, TaskInput
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from leyden_storage.promotions import stored_evaluations
from support.servers import find_port, wait_for
from support.task_api import SPEC, play

COMMAND = [sys.executable, "-m", "leyden_task_api"]
Environment = dict[str, str]


@pytest.fixture
def environment(redis_url: str, tmp_path: Path, signing_key: str) -> Environment:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")},
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{tmp_path}/store",
        "LEYDEN_SIGNING_KEY": signing_key,
        "LEYDEN_TASK_API_PORT": str(find_port()),
        "LEYDEN_TASK_API_GAUGES_S": "0.1",
        "LEYDEN_LOG_LEVEL": "info",
    }


@contextmanager
def running(environment: Environment) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(COMMAND, env=environment, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{environment['LEYDEN_TASK_API_PORT']}"

    def up() -> bool:
        try:
            return httpx.get(url + "/healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(up, 30, "the task API")
        yield process, url
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"LEYDEN_TASK_API_PROT": "1"}, "LEYDEN_TASK_API_PROT: no such setting"),
        ({"LEYDEN_TASK_API_PORT": "many"}, "port"),
        ({"LEYDEN_STORE_URL": "/somewhere"}, "is no object store"),
        ({"LEYDEN_SIGNING_KEY": "short"}, "32 characters"),
    ],
)
def test_bad_settings_end_with_exit_code_2(environment: Environment, change: Environment, message: str) -> None:
    done = subprocess.run(COMMAND, env={**environment, **change}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_rings_for_uploaded_tasks_and_stops_with_a_reader_of_events_connected(
    environment: Environment, token: str, number: signal.Signals
) -> None:
    import redis

    with running(environment) as (process, url), LeydenClient(url, token) as client:
        client.create_run(RunSpec.model_validate({**SPEC, "id": "mine"}))
        client.upload_tasks("mine", [TaskInput(input=n) for n in range(3)])
        with redis.Redis.from_url(environment["LEYDEN_REDIS_URL"]) as broker:
            wait_for(lambda: broker.llen("leyden") == 4, 60, "the doorbell")
        gauge = 'leyden_run_episodes{purpose="train",run="mine",state="queued"} 6.0'
        wait_for(lambda: gauge in httpx.get(url + "/metrics").text, 60, "the gauge")
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.stream("GET", f"{url}/v1/runs/mine/events", headers=headers) as reader:
            next(reader.iter_lines())
            process.send_signal(number)
            assert process.wait(6) == 0
        assert process.stderr
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert lines[0]["event"] == "listening" and lines[0]["service"] == "task_api"


@pytest.mark.parametrize("point", ["task_api.evaluating", "task_api.evaluated", "task_api.promoted"])
async def test_killed_between_store_and_ledger_it_promotes_once(
    environment: Environment, token: str, ledger: Ledger, store: LocalStore, point: str
) -> None:
    environment |= {"LEYDEN_TASK_API_EVALUATE_S": "0.05", "LEYDEN_TASK_API_RING_AGAIN_S": "0.1"}

    async def play_until(over: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not over():
                await play(ledger, "mine", lambda _: 1.0)
                await asyncio.sleep(0.05)

    with running({**environment, "LEYDEN_FAILPOINTS": f"{point}=kill"}) as (process, url):
        with LeydenClient(url, token) as client:
            spec = RunSpec.model_validate({**SPEC, "id": "mine", "evaluation": {"every": 1}})
            client.create_run(spec)
            client.upload_tasks("mine", [TaskInput(input=n) for n in range(3)], purpose="held_out")
        await play_until(lambda: process.poll() is not None)
        assert process.returncode == -signal.SIGKILL
    with running(environment) as (_, url), LeydenClient(url, token) as client:
        await play_until(lambda: bool(stored_evaluations(store, "mine")))
        wait_for(lambda: client.run("mine").summary.promoted == 0, 60, "the promotion")
        found = client.versions("mine")
    assert len(found.promotions) == 1 and found.versions[0].evaluation
    assert found.versions[0].evaluation.counts == {"succeeded": 3}


def test_a_taken_port_is_an_error(environment: Environment) -> None:
    with running(environment):
        done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "address already in use" in done.stderr.lower()
        assert "Traceback" not in done.stderr
