"""How many spans the real collector makes durable in a second of its CPU: HTTP in, acknowledged on disk.

`python tests/bench/collector_spans.py [--load bytes|lists|l2] [--spans N] [--batch N] [--senders N]` starts a Redis and
a collector with a local store, sends what it has prepared, checks that it is on disk, and prints one JSON line:
`collector.durable_spans_per_cpu_s`, with what it was measured on.

Loads: `bytes`, a call of 2,048 prompt ids, 256 response ids and logprobs, packed; `lists`, the same as lists; `l2`, the
load that Agent Lightning was measured with: lists of 200 and 50 ids and two texts, which are no calls for us.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import numpy as np
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

sys.path.insert(0, str(Path(__file__).parent.parent))

from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_traces import names
from support.collector import collector_process
from support.servers import redis_server
from support.spans import call_span, pack_ids, pack_logprobs, transition

KEY = "bench-signing-key-of-more-than-32-characters"
PROMPT, RESPONSE = 2048, 256


def packed(number: int) -> Span:
    """Return an LLM-sized call, packed."""
    random = np.random.default_rng(number)
    return call_span(
        transition(
            number,
            episode=f"g-{number // 8}.0",
            run="bench",
            prompt_token_ids=pack_ids(random.integers(0, 150_000, PROMPT).tolist()),
            response_token_ids=pack_ids(random.integers(0, 150_000, RESPONSE).tolist()),
            response_logprobs=pack_logprobs((-random.random(RESPONSE)).tolist()),
        )
    )


def listed(number: int) -> Span:
    """Return the same call with lists."""
    span = packed(number)
    kinds = {
        names.PROMPT_TOKEN_IDS: ("<i4", "int_value"),
        names.RESPONSE_TOKEN_IDS: ("<i4", "int_value"),
        names.RESPONSE_LOGPROBS: ("<f4", "double_value"),
    }
    for attribute in span.attributes:
        if attribute.key in kinds:
            kind, field = kinds[attribute.key]
            numbers = np.frombuffer(attribute.value.bytes_value, kind).tolist()
            attribute.value.ClearField("bytes_value")
            for value in numbers:
                setattr(attribute.value.array_value.values.add(), field, value)
    return span


def plain(number: int) -> Span:
    """Return a span of the load that Agent Lightning was measured with."""
    span = Span(trace_id=os.urandom(16), span_id=os.urandom(8), name="openai.chat.completion")
    span.start_time_unix_nano, span.end_time_unix_nano = number, number + 1000
    for key, count in (("prompt_token_ids", 200), ("response_token_ids", 50)):
        values = span.attributes.add(key=key).value.array_value.values
        for one in range(count):
            values.add().int_value = one + 1000
    for key, text in (("gen_ai.prompt.0.content", "turn " * 100), ("gen_ai.completion.0.content", "hello " * 50)):
        span.attributes.add(key=key).value.string_value = text
    return span


LOADS: dict[str, Callable[[int], Span]] = {"bytes": packed, "lists": listed, "l2": plain}


def bodies(load: str, spans: int, batch: int) -> Iterator[bytes]:
    """Yield serialized requests of `batch` spans."""
    for start in range(0, spans, batch):
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        if load == "l2":
            for key, value in ((names.RUN, "bench"), (names.EPISODE, f"g-{start}.0"), (names.ATTEMPT, "1")):
                group.resource.attributes.add(key=key).value.string_value = value
        group.scope_spans.add().spans.extend(LOADS[load](number + 1) for number in range(start, start + batch))
        yield request.SerializeToString()


async def send(url: str, requests: list[bytes], senders: int) -> None:
    """Send all of `requests`, each until it is stored."""
    headers = {
        "Content-Type": "application/x-protobuf",
        "Authorization": f"Bearer {Tokens(KEY).mint(Scope.SPANS, 3600)}",
    }
    left = iter(requests)

    async def sender(session: aiohttp.ClientSession) -> None:
        for body in left:
            async with session.post(f"{url}/v1/traces", data=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                refused = ExportTraceServiceResponse.FromString(await answer.read()).partial_success
                assert not refused.rejected_spans, refused.error_message

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=senders)) as session:
        await asyncio.gather(*(sender(session) for _ in range(senders)))


def stored(folder: Path) -> int:
    """Return how many spans are in the segments on disk."""
    store = LocalStore(folder)
    whole = (ExportTraceServiceRequest.FromString(store.get(key)) for key in store.list("runs/bench/segments/"))
    return sum(len(scope.spans) for request in whole for group in request.resource_spans for scope in group.scope_spans)


def measure(load: str, spans: int, batch: int, senders: int) -> dict[str, object]:
    """Return what one run of one load shows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = list(bodies(load, spans, batch))
        spans = len(requests) * batch
        with (
            redis_server(folder / "redis") as redis_url,
            collector_process(folder, redis_url, folder / "store", KEY) as (child, url),
        ):
            process = psutil.Process(child.pid)
            asyncio.run(send(url, requests[:4], senders))
            requests, warm = requests[4:], 4 * batch
            before, start = process.cpu_times(), time.perf_counter()
            asyncio.run(send(url, requests, senders))
            wall, after = time.perf_counter() - start, process.cpu_times()
            rss = process.memory_info().rss
        assert stored(folder / "store") == spans, "acknowledged, but not on disk"
    cpu = after.user + after.system - before.user - before.system
    return {
        "metric": "collector.durable_spans_per_cpu_s",
        "value": round((spans - warm) / cpu),
        "load": load,
        "spans": spans - warm,
        "batch": batch,
        "senders": senders,
        "bytes_per_span": sum(map(len, requests)) // (spans - warm),
        "cpu_us_per_span": round(cpu / (spans - warm) * 1e6, 1),
        "spans_per_s": round((spans - warm) / wall),
        "rss_mb": round(rss / 2**20),
    }


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", choices=LOADS, default="bytes")
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--senders", type=int, default=16)
    print(json.dumps(measure(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
