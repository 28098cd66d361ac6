"""CPU and latency of one call with a 256-token reply: the gateway's, a bare proxy's, LiteLLM's."""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from gateway_load import Target, send
from ledger_parts import HERE, KEY, cpu_seconds, middle, service

from leyden_contracts import RunSpec
from leyden_ledger import Ledger, ReplicaStatus
from leyden_runtime.tokens import Scope, Tokens
from support.episodes import Planned, accept
from support.servers import find_port, process, redis_server, wait_for
from support.worker import answers

RUN, EPISODE, BASE = "bench", "g.0", "tiny"
LITELLM = HERE.parents[1] / ".venv-litellm/bin/litellm"


@dataclass(frozen=True)
class Side:
    """One way to the upstream, and the process that it costs."""

    target: Target
    process: psutil.Process


@contextmanager
def script(path: Path, folder: Path, *more: str) -> Iterator[tuple[psutil.Process, str]]:
    """Run a script that takes its port first; yields it and its URL."""
    port = find_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(path), str(port), *more]
    with process(command, folder / f"{path.stem}.log", env=environment) as child:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/healthz"), 60, path.name)
        yield psutil.Process(child.pid), url


@contextmanager
def gateway(folder: Path, replica: str) -> Iterator[tuple[Side, str]]:
    """Run the gateway before `replica`, with a ledger and a sink for its spans; yields it and the sink's URL."""
    with redis_server(folder / "redis") as redis_url, script(HERE / "gateway_sink.py", folder) as (_, sink):
        asyncio.run(_one_attempt(redis_url, replica))
        with service("gateway", folder, redis_url, collector_url=sink) as (served, url):
            token = Tokens(KEY).mint(Scope.ATTEMPT, 3600, run=RUN, episode=EPISODE, attempt=1)
            yield Side(Target(url, token, "policy"), served), sink


async def _one_attempt(redis_url: str, replica: str) -> None:
    ledger = Ledger.connect(redis_url)
    spec = {"id": RUN, "base_model": BASE, "agent": "a:b", "grader": "a:c", "episodes": {"max_calls": 10**6}}
    await ledger.runs.create(RunSpec.model_validate(spec))
    await accept(ledger, RUN, [Planned("g", purpose="train", version=None)])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, EPISODE, "bench", 3600)
    await ledger.replicas.beat(ReplicaStatus(id="r0", url=replica, base_model=BASE, ready=[]), 3600)
    await ledger.aclose()


@contextmanager
def passthrough(folder: Path, replica: str) -> Iterator[Side]:
    """Run the bare proxy."""
    with script(HERE / "peers/passthrough.py", folder, replica) as (served, url):
        yield Side(Target(url, "none", BASE), served)


@contextmanager
def litellm(folder: Path, replica: str) -> Iterator[Side]:
    """Run LiteLLM's proxy, with one worker and no database."""
    port, key = find_port(), "sk-bench"
    model = {"model": f"openai/{BASE}", "api_base": f"{replica}/v1", "api_key": "none"}
    config = folder / "litellm.json"
    config.write_text(json.dumps({"model_list": [{"model_name": BASE, "litellm_params": model}]}))
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_MASTER_KEY": key,
    }
    command = [
        str(LITELLM),
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--telemetry",
        "False",
    ]
    with process(command, folder / "litellm.log", env=environment) as child:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/health/liveliness"), 120, f"LiteLLM (see {folder}/litellm.log)")
        yield Side(Target(url, key, BASE), psutil.Process(child.pid))


def cpu_ms(side: Side, requests: int, at_once: int = 8) -> float:
    """Return the CPU milliseconds of a call."""
    before = cpu_seconds([side.process])
    done = len(send(side.target, requests, at_once))
    return (cpu_seconds([side.process]) - before) / done * 1000


def p50_ms(target: Target, requests: int) -> float:
    """Return the median time of a call when there is one at a time."""
    return middle(send(target, requests, 1)) * 1000


def report(requests: int, rounds: int) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, replica = stack.enter_context(script(HERE / "gateway_upstream.py", folder))
        ours, sink = stack.enter_context(gateway(folder, replica))
        bare = stack.enter_context(passthrough(folder, replica))
        theirs = stack.enter_context(litellm(folder, replica)) if LITELLM.exists() else None
        for side in filter(None, (ours, bare, theirs)):
            send(side.target, 50, 8)
        costs = [(cpu_ms(ours, requests), cpu_ms(bare, requests)) for _ in range(rounds)]
        direct = Target(replica, "none", BASE)
        added = [p50_ms(ours.target, requests // 3) - p50_ms(direct, requests // 3) for _ in range(rounds)]
        if theirs:
            rivals = [(cpu_ms(ours, requests), cpu_ms(theirs, requests // 10)) for _ in range(3)]
        show("cpu_vs_passthrough", middle(a / b for a, b in costs), "ratio of CPU seconds a call", 2, 1)
        show("cpu_ms_per_call", middle(a for a, _ in costs), "ms", baseline=middle(b for _, b in costs))
        show("added_p50_ms", middle(added), "ms at concurrency 1, against the replica itself", 1.5)
        if theirs:
            show("vs_litellm", middle(b / a for a, b in rivals), "ratio of requests a CPU second", 40, 1)
            show("litellm_cpu_ms_per_call", middle(b for _, b in rivals), "ms")
        seen = json.loads(urllib.request.urlopen(f"{sink}/healthz", timeout=10).read())
        show("calls_captured", seen["calls"], "calls")
        show("calls_captured_wrong", seen["wrong"], "calls", 0)


def show(
    name: str,
    value: float,
    unit: str,
    target: float | None = None,
    baseline: float | None = None,
    of: str = "gateway",
) -> None:
    """Print one figure."""
    rounded = None if baseline is None else round(baseline, 3)
    figure = {"name": f"{of}.{name}", "value": round(value, 3), "unit": unit, "target": target, "baseline": rounded}
    print(json.dumps(figure), flush=True)
