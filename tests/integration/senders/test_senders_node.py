"""OpenTelemetry's SDK for Node before a real collector, by each protocol that it has."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from support.collector import collector_process
from support.servers import find_port, redis_server
from support.spans import spans_of

FOLDER = Path(__file__).parent / "node"
KEY = "test-signing-key-of-more-than-32-characters"
EPISODE = "g-0.0"
PROTOCOLS = ["http/json", "http/protobuf", "grpc"]


class Collector(NamedTuple):
    """A collector, and what it stores."""

    urls: dict[str, str]
    """Protocol -> endpoint."""
    store: LocalStore

    def run_node(self, run: str, protocol: str, key: str = KEY, **more: str) -> dict[str, Any]:
        """Run `sender.mjs` with the environment that a worker sets; return what it printed."""
        assert (FOLDER / "node_modules").is_dir(), "run `just servers` first"
        token = Tokens(key).mint(Scope.ATTEMPT, 600, run=run, episode=EPISODE, attempt=1)
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.urls[protocol],
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}",
            "OTEL_RESOURCE_ATTRIBUTES": f"leyden.run={run},leyden.episode={EPISODE},leyden.attempt=1",
        }
        command = ["node", str(FOLDER / "sender.mjs")]
        done = subprocess.run(command, env=os.environ | environment | more, capture_output=True, timeout=60, check=True)
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    folder, port = tmp_path_factory.mktemp("collector"), find_port()
    with (
        redis_server(folder / "redis") as redis_url,
        collector_process(folder, redis_url, folder / "store", KEY, grpc_port=port) as (_, url),
    ):
        urls = {"http/json": url, "http/protobuf": url, "grpc": f"http://127.0.0.1:{port}"}
        yield Collector(urls, LocalStore(folder / "store"))


def values(span: Span) -> dict[str, Any]:
    """Return the span's attributes."""
    found = {}
    for attribute in span.attributes:
        kind = attribute.value.WhichOneof("value") or ""
        value = getattr(attribute.value, kind)
        found[attribute.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return found


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_node_sends_spans(collector: Collector, protocol: str, compression: str) -> None:
    run = f"run-{protocol.replace('/', '-')}-{compression}"
    said = collector.run_node(run, protocol, OTEL_EXPORTER_OTLP_COMPRESSION=compression)
    assert said["wrong"] == ""

    stored = spans_of(*(collector.store.get(key) for key in collector.store.list(f"runs/{run}/segments/")))
    spans = {span.name: span for span in stored}
    assert set(spans) == {"invoke_agent planner", "execute_tool add"}
    plan, tool = spans["invoke_agent planner"], spans["execute_tool add"]
    assert said["ids"] == [[span.trace_id.hex(), span.span_id.hex()] for span in (plan, tool)]
    assert tool.parent_span_id == plan.span_id
    assert plan.start_time_unix_nano <= tool.start_time_unix_nano <= tool.end_time_unix_nano <= plan.end_time_unix_nano
    assert (tool.status.code, tool.status.message) == (Status.STATUS_CODE_ERROR, "no table")
    assert [event.name for event in tool.events] == ["looked", "exception"]
    wanted = {"gen_ai.tool.name": "add", "count": 95, "share": 0.25, "done": True, "names": ["a", "ü"], "large": 2**40}
    assert {name: value for name, value in values(tool).items() if name in wanted} == wanted

    (refused,) = collector.store.list(f"runs/{run}/quarantine/")
    assert b'"kind": "forged"' in collector.store.get(refused)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_node_hears_that_its_token_is_wrong(collector: Collector, protocol: str) -> None:
    said = collector.run_node(f"run-wrong-{protocol.replace('/', '-')}", protocol, key="another" * 6)
    assert any(code in said["wrong"] for code in ("401", "16")), said
