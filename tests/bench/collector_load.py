"""Load L2: small LLM spans (200 + 50 token ids, two texts), 50 a request, at a collector and at Agent Lightning.

A span counts when it is acknowledged: ours is on disk then (fsynced, and noted in the ledger), theirs in memory. CPU is
the server's alone; ours includes Redis.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import redis
from figures import show
from ledger_parts import HERE, KEY, cpu_seconds, middle, redis_process, service
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from leyden_contracts import Transition
from leyden_runtime.tokens import Scope, Tokens
from leyden_traces import encode_call, pack_ids, pack_logprobs
from leyden_traces.calls import text
from support.servers import find_port, redis_server

PEER = HERE.parents[1] / ".venv-peers/bin/python"
A_REQUEST, AT_ONCE = 50, 8
_MARK = "g.00000000"
"""An episode's id of fixed length: each request gets one of its own by replacing these bytes."""
_TEXTS = {"gen_ai.prompt.0.content": "turn " * 100, "gen_ai.completion.0.content": "hello " * 50}


@dataclass(frozen=True)
class Served:
    """A running collector."""

    url: str
    collector: psutil.Process
    redis: psutil.Process

    @property
    def cpu_s(self) -> float:
        """CPU seconds of it and of its Redis so far."""
        return cpu_seconds([self.collector, self.redis])

    @property
    def rss_mb(self) -> float:
        """Memory of the collector, MiB."""
        return self.collector.memory_info().rss / 2**20


@contextmanager
def collector(folder: Path) -> Iterator[Served]:
    """Run a collector with a local store and a real Redis."""
    with redis_server(folder / "redis") as redis_url, service("collector", folder, redis_url) as (child, url):
        yield Served(url, child, redis_process(redis.Redis.from_url(redis_url)))


def template() -> bytes:
    """Return a request whose episode is `_MARK`."""
    ids = {"prompt_token_ids": pack_ids(range(1000, 1200)), "response_token_ids": pack_ids(range(50))}
    spans = []
    for number in range(1, A_REQUEST + 1):
        call = Transition.model_construct(
            run="bench",
            episode=_MARK,
            attempt=1,
            number=number,
            role="policy",
            policy_version=0,
            **ids,
            response_logprobs=pack_logprobs([-0.5] * 50),
            temperature=1.0,
            finish_reason="stop",
            response_id=f"r{number}",
            replica="r0",
        )
        span = encode_call(call, 1, 2, b"t" * 16, number.to_bytes(8, "big"), b"")
        span.attributes.extend(text(name, value) for name, value in _TEXTS.items())
        spans.append(span)
    group = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])
    return ExportTraceServiceRequest(resource_spans=[group]).SerializeToString()


async def _send(url: str, numbers: Iterator[int]) -> None:
    body, mark = template(), _MARK.encode()
    headers = {
        "Authorization": f"Bearer {Tokens(KEY).mint(Scope.SPANS, 3600)}",
        "Content-Type": "application/x-protobuf",
    }

    async def one_sender(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            own = body.replace(mark, b"g.%08d" % number)
            async with session.post(f"{url}/v1/traces", data=own, headers=headers) as answer:
                if answer.status != 200 or await answer.read():
                    raise SystemExit(f"the collector answered {answer.status}")

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one_sender(session) for _ in range(AT_ONCE)))


def send(served: Served, spans: int, first: int = 0) -> float:
    """Send `spans` spans; return how many a CPU second of the server. `first` keeps their episodes apart."""
    before = served.cpu_s
    asyncio.run(_send(served.url, iter(range(first, first + spans // A_REQUEST))))
    return spans / (served.cpu_s - before)


def agent_lightning(spans: int) -> float | None:
    """Return the same of Agent Lightning 0.3.0; None where it is not installed (`just setup-peers`)."""
    if not PEER.exists():
        return None
    script = [str(PEER), str(HERE / "peers/agent_lightning_otlp.py")]
    command = [*script, str(spans), str(A_REQUEST), str(AT_ONCE), str(find_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        raise SystemExit("Agent Lightning did not run")
    return json.loads(done.stdout.splitlines()[-1])["spans_per_cpu_s"]


def report(spans: int, rounds: int) -> None:
    """Measure and print: the two in turns."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name, collector(Path(name)) as served:
        send(served, spans // 4)
        for number in range(rounds):
            ours.append(send(served, spans, first=(number + 1) * spans))
            if peer := agent_lightning(max(spans // 20, 1000)):
                theirs.append(peer)
    unit = "spans a CPU second, acknowledged on disk, Redis included"
    show("collector.durable_spans_per_cpu_s", middle(ours), unit, baseline=middle(theirs) if theirs else None)
    if theirs:
        ratio = middle(a / b for a, b in zip(ours, theirs, strict=True))
        show("collector.vs_agent_lightning", ratio, "ratio of spans a CPU second (load L2)", 20, 1)


def report_memory(few: int, many: int) -> None:
    """Measure and print memory after `few` spans and after `many`."""
    with tempfile.TemporaryDirectory() as name, collector(Path(name)) as served:
        send(served, few)
        after_few = served.rss_mb
        send(served, many - few, first=few)
        grown = served.rss_mb - after_few
        show("collector.rss_mb", served.rss_mb, f"MiB after {many:,} spans", baseline=after_few)
        show("collector.rss_growth_mb", grown, f"MiB from {few:,} to {many:,} spans", 50)
