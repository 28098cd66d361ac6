"""`just bench upload`: a million tasks in one upload, to the real process on a local store and a real Redis.

Prints one JSON object a line. The peak is the API process's own (VmHWM), from its start to the answer and the entering
of the first window; the time is the client's, from the first byte to the answer.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from leyden_client.client import LeydenClient
from leyden_contracts import RunSpec
from leyden_runtime.tokens import Scope, Tokens
from support.servers import find_port, process, redis_server, wait_for

TARGET_MB = 300
KEY = "a-signing-key-of-more-than-32-characters"
SPEC = {"base_model": "free", "agent": "bench_agent:run", "grader": "bench_agent:grade"}


def write_tasks(path: Path, count: int) -> None:
    """Write JSONL as people do."""
    with path.open("w") as file:
        for number in range(count):
            task = {"input": f"What is {number} + 12345?", "expected": number + 12345, "tags": {"length": "short"}}
            file.write(json.dumps(task) + "\n")


@contextmanager
def task_api(folder: Path, redis_url: str) -> Iterator[tuple[psutil.Process, str]]:
    """Run the task API; yields its process and its URL."""
    port = find_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")},
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{folder}/store",
        "LEYDEN_SIGNING_KEY": KEY,
        "LEYDEN_TASK_API_PORT": str(port),
    }
    command = [sys.executable, "-m", "leyden_task_api"]
    with process(command, folder / "task_api.log", env=environment) as child:
        with LeydenClient(f"http://127.0.0.1:{port}", Tokens(KEY).mint(Scope.API, 3600), patience_s=30) as client:
            list(client.runs())
        yield psutil.Process(child.pid), f"http://127.0.0.1:{port}"


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has held, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def measure(count: int, samples: int) -> dict[str, float]:
    """Upload `count` tasks; return the figures."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name) / "redis", appendonly=True) as redis_url:
        folder = Path(name)
        write_tasks(folder / "tasks.jsonl", count)
        token = Tokens(KEY).mint(Scope.API, 3600)
        with task_api(folder, redis_url) as (api, url), LeydenClient(url, token) as client:
            run = str(client.create_run(RunSpec.model_validate(SPEC)).spec.id)
            start_mb, before, started = peak_mb(api.pid), api.cpu_times(), time.perf_counter()
            done = client.upload_tasks(run, folder / "tasks.jsonl", purpose="eval", samples=samples)
            seconds, after = time.perf_counter() - started, api.cpu_times()
            if done.groups != count:
                raise SystemExit(f"{done.groups} of {count} tasks were accepted")
            wait_for(lambda: any(client.episodes(run)), 30, "the first window")
            time.sleep(1)
            cpu = after.user + after.system - before.user - before.system
            return {"peak_mb": peak_mb(api.pid), "start_mb": start_mb, "seconds": seconds, "cpu_us": cpu / count * 1e6}


def show(name: str, value: float, unit: str, target: float | None = None) -> None:
    """Print one figure."""
    figure = {"name": name, "value": round(value, 3), "unit": unit, "target": target, "baseline": None}
    print(json.dumps(figure), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=1)
    asked = parser.parse_args()
    figures = measure(asked.tasks, asked.samples)
    show("upload.million_peak_mb", figures["peak_mb"], "MiB of the API process", TARGET_MB)
    show("upload.million_s", figures["seconds"], "s")
    show("upload.us_per_task", figures["cpu_us"], "us of the API's CPU")
    show("upload.idle_peak_mb", figures["start_mb"], "MiB of the API process before the upload")


if __name__ == "__main__":
    main()
