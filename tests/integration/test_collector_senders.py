"""Senders that others wrote, against a real collector process: OpenTelemetry's Python SDK, and rotel in between."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_traces import trace_id
from support.collector import collector_process
from support.rotel import rotel_process
from support.servers import find_port, redis_server, wait_for
from support.spans import spans_of

KEY = "test-signing-key-of-more-than-32-characters"
EPISODE = "g-0.0"
AGENT = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
protocol, parent = sys.argv[1:]
if protocol == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
context = TraceContextTextMapPropagator().extract({"traceparent": parent})
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("agent")
with tracer.start_as_current_span("plan", context=context):
    for number in range(20):
        attributes = {"tokens": [1, 2, 3], "text": "x" * 500}
        with tracer.start_as_current_span(f"step {number}", attributes=attributes) as span:
            span.add_event("thought", {"n": number})
    with tracer.start_as_current_span("forge", attributes={"leyden.call": 1}):
        pass
provider.shutdown()
"""


class Shared(NamedTuple):
    """One collector for all these tests."""

    url: str
    grpc: str
    store: LocalStore


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder, port = tmp_path_factory.mktemp("collector"), find_port()
    with (
        redis_server(folder / "redis") as redis_url,
        collector_process(folder, redis_url, folder / "store", KEY, grpc_port=port) as (_, url),
    ):
        yield Shared(url, f"http://127.0.0.1:{port}", LocalStore(folder / "store"))


def token(run: str) -> str:
    return Tokens(KEY).mint(Scope.ATTEMPT, 600, run=run, episode=EPISODE, attempt=1)


def run_agent(run: str, endpoint: str, protocol: str, compressed: bool = False, whose: str | None = None) -> None:
    """Run an instrumented program, with the environment that a worker sets or a user may choose."""
    parent = f"00-{trace_id(whose or run, EPISODE, 1).hex()}-{'ab' * 8}-01"
    environment = os.environ | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc" if protocol == "grpc" else "http/protobuf",
        **({"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"} if compressed else {}),
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token(run)}",
        "OTEL_RESOURCE_ATTRIBUTES": f"leyden.run={run},leyden.episode={EPISODE},leyden.attempt=1",
    }
    subprocess.run([sys.executable, "-c", AGENT, protocol, parent], env=environment, check=True, timeout=60)


def stored(store: LocalStore, run: str) -> list[Span]:
    return spans_of(*(store.get(key) for key in store.list(f"runs/{run}/segments/")))


def assert_all_there(store: LocalStore, run: str) -> None:
    expected = sorted(["plan", *(f"step {number}" for number in range(20))])
    wait_for(lambda: len(stored(store, run)) >= len(expected), 30, "the spans")
    assert sorted(span.name for span in stored(store, run)) == expected
    quarantined = lambda: list(store.list(f"runs/{run}/quarantine/"))  # noqa: E731
    wait_for(lambda: bool(quarantined()), 30, "the forged span")
    (refused,) = quarantined()
    assert b'"kind": "forged"' in store.get(refused)


@pytest.mark.parametrize("compressed", [False, True])
def test_pythons_sdk_over_grpc(compressed: bool, shared: Shared) -> None:
    run = f"run-grpc-{compressed}".lower()
    run_agent(run, shared.grpc, "grpc", compressed)
    assert_all_there(shared.store, run)


@pytest.mark.parametrize("inwards", ["http", "grpc"])
@pytest.mark.parametrize("outwards", ["http", "grpc"])
def test_rotel_in_between(inwards: str, outwards: str, shared: Shared, tmp_path: Path) -> None:
    """A collector of the user's own forwards with our token in its headers."""
    run = f"run-{inwards}-{outwards}"
    ours = shared.grpc if outwards == "grpc" else shared.url
    with rotel_process(tmp_path, ours, outwards, token(run)) as (http, grpc):
        run_agent(run, grpc if inwards == "grpc" else http, inwards)
        assert_all_there(shared.store, run)


def test_a_forged_traceparent_leads_nowhere(shared: Shared) -> None:
    """Whose trace an agent claims to be in says nothing: its token does."""
    run_agent("run-mallory", shared.url, "http", whose="run-alice")
    assert_all_there(shared.store, "run-mallory")
    assert list(shared.store.list("runs/run-alice/")) == []
