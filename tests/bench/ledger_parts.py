"""The processes that the ledger's figures are of, and what they cost."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from leyden_client.client import LeydenClient
from leyden_contracts import RunSpec
from leyden_runtime.tokens import Scope, Tokens
from support.servers import find_port, process, wait_for
from support.worker import answers

HERE = Path(__file__).parent
KEY = "a-signing-key-of-more-than-32-characters"
NOTHING = {"base_model": "free", "agent": "noop_agent:run", "grader": "noop_agent:grade"}


@contextmanager
def service(name: str, folder: Path, redis_url: str, **settings: object) -> Iterator[tuple[psutil.Process, str]]:
    """Run one of our services on the store in `folder`/store; yields its process and its URL, once it answers.

    Args:
        name: of the service.
        folder: for its data and its log.
        redis_url: of the ledger.
        settings: its own, without their prefix.
    """
    port = find_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")},
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{folder}/store",
        "LEYDEN_SIGNING_KEY": KEY,
        f"LEYDEN_{name.upper()}_PORT": str(port),
        **{f"LEYDEN_{name.upper()}_{key.upper()}": str(value) for key, value in settings.items()},
    }
    command = [sys.executable, "-m", f"leyden_{name}"]
    log = folder / f"{name}-{port}.log"
    with process(command, log, env=environment, start_new_session=True) as child:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/healthz"), 60, f"{name} (see {log})")
        yield psutil.Process(child.pid), f"http://127.0.0.1:{port}"


@contextmanager
def api_client(url: str) -> Iterator[LeydenClient]:
    """Open a client with every right."""
    with LeydenClient(url, Tokens(KEY).mint(Scope.API, 3600), patience_s=60) as client:
        yield client


def new_run(client: LeydenClient, **spec: Any) -> str:
    """Create a run of agents that do nothing."""
    return str(client.create_run(RunSpec.model_validate(NOTHING | spec)).spec.id)


def post(url: str, body: bytes) -> None:
    """Upload JSONL as cheaply as can be. Raises urllib.error.HTTPError."""
    headers = {
        "Authorization": f"Bearer {Tokens(KEY).mint(Scope.API, 3600)}",
        "Content-Type": "application/x-ndjson",
    }
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=300) as response:
        response.read()


def cpu_seconds(tops: Iterable[psutil.Process]) -> float:
    """Return the CPU seconds of processes and all below them so far, those that have ended and been waited for too."""
    family = [one for top in tops for one in (top, *top.children(recursive=True))]
    total = 0.0
    for one in family:
        try:
            used = one.cpu_times()
        except psutil.NoSuchProcess:  # then its parent's `children_` times have it
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def redis_process(client: Any) -> psutil.Process:
    """Return the server's process."""
    return psutil.Process(client.info("server")["process_id"])


def middle(values: Iterable[float]) -> float:
    """Return the median."""
    return median(values)


def show(name: str, value: float, unit: str, target: float | None = None, baseline: float | None = None) -> None:
    """Print one figure."""
    figure = {
        "name": f"ledger.{name}",
        "value": round(value, 3),
        "unit": unit,
        "target": target,
        "baseline": None if baseline is None else round(baseline, 3),
    }
    print(json.dumps(figure), flush=True)
