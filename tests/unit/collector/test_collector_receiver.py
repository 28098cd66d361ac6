"""OTLP over HTTP: what is answered, and when."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from leyden_runtime.tokens import Scope
from support.collector import Served, serve_receiver
from support.spans import agent_span, broken_span, call_span, request, spans_of, transition

BODY = request(call_span(transition())).SerializeToString()


@pytest.fixture
async def served(signing_key: str) -> AsyncIterator[Served]:
    async with serve_receiver(signing_key) as served:
        yield served


@pytest.fixture
def gateway(served: Served) -> str:
    return served.tokens.mint(Scope.SPANS, 60)


@pytest.fixture
def agent(served: Served) -> str:
    return served.tokens.mint(Scope.ATTEMPT, 60, run="run-a", episode="g-0.0", attempt=1)


async def test_spans_are_stored_and_noted_when_the_answer_is_200(served: Served, gateway: str) -> None:
    status, body, headers = await served.post(BODY, gateway)
    assert (status, body, headers["Content-Type"]) == (200, b"", "application/x-protobuf")
    ((key, data),) = served.store.objects.items()
    assert spans_of(data) == [call_span(transition())]
    assert [(note.call, note.segment) for note in served.notes.noted] == [(1, key)]


@pytest.mark.parametrize("part", ["store", "notes"])
async def test_what_is_not_durable_gets_503_and_when_to_send_it_again(part: str, served: Served, gateway: str) -> None:
    getattr(served, part).down = True
    status, body, headers = await served.post(BODY, gateway)
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "send them again" in Status.FromString(body).message
    getattr(served, part).down = False
    assert (await served.post(BODY, gateway))[0] == 200


async def test_a_real_sdk_sends_again_until_its_spans_are_stored(served: Served, gateway: str) -> None:
    exporter = OTLPSpanExporter(f"{served.url}/v1/traces", headers={"authorization": f"Bearer {gateway}"})
    provider = TracerProvider(resource=Resource({"leyden.run": "run-a"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    served.store.down = True
    provider.get_tracer("gateway").start_span("chat").end()
    flushed = asyncio.create_task(asyncio.to_thread(provider.shutdown))
    await asyncio.sleep(0.5)
    assert served.store.calls == 1
    served.store.down = False
    await flushed
    assert [span.name for span in spans_of(*served.store.objects.values())] == ["chat"]


async def test_a_hanging_store_never_yields_200(served: Served, gateway: str) -> None:
    served.store.gate.clear()
    answer = asyncio.create_task(served.post(BODY, gateway))
    await asyncio.sleep(0.2)
    assert not answer.done()
    assert (await answer)[0] == 503
    assert served.notes.noted == []


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)]
)
async def test_compressed_bodies_are_taken(served: Served, gateway: str, encoding: str, compress) -> None:
    status, *_ = await served.post(compress(BODY), gateway, {"Content-Encoding": encoding})
    assert status == 200
    assert spans_of(*served.store.objects.values()) == [call_span(transition())]


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
        (b"[]", {"Content-Type": "application/json"}, 400, "in JSON"),
        (BODY, {"Content-Encoding": "snappy"}, 415, "gzip"),
        (b"\xff\xff", {}, 400, "ExportTraceServiceRequest"),
        (b"not gzip", {"Content-Encoding": "gzip"}, 400, "Content-Encoding"),
        (BODY, {"Authorization": "Bearer nonsense"}, 401, "token"),
        (BODY, {"Authorization": ""}, 401, "Bearer"),
    ],
)
async def test_requests_that_cannot_be_taken(
    served: Served, gateway: str, body: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    found, answer, answered = await served.post(body, gateway, headers)
    assert found == status
    spoken = headers.get("Content-Type")
    fields = {"text/plain": "detail", "application/json": "message"}
    assert says in (json.loads(answer)[fields[spoken]] if spoken else Status.FromString(answer).message)
    assert "Retry-After" not in answered
    assert served.store.objects == {}


async def test_only_gateways_and_attempts_may_send(served: Served) -> None:
    user = served.tokens.mint(Scope.API, 60)
    nobody = served.tokens.mint(Scope.ATTEMPT, 60, run="run-a")
    assert [(await served.post(BODY, token))[0] for token in (user, nobody)] == [403, 403]


async def test_malformed_spans_are_refused_in_part_and_quarantined(served: Served, gateway: str) -> None:
    spans = [call_span(transition(1)), broken_span(transition(2)), broken_span(transition(3)), agent_span()]
    status, body, _ = await served.post(request(*spans).SerializeToString(), gateway)
    partial = ExportTraceServiceResponse.FromString(body).partial_success
    assert (status, partial.rejected_spans) == (200, 3)
    assert "7 logprobs" in partial.error_message
    assert "leyden.run is missing" in partial.error_message
    folders = {key.rpartition("/")[0]: data for key, data in served.store.objects.items()}
    assert spans_of(folders["runs/run-a/segments"]) == [spans[0]]
    assert len(folders["runs/run-a/quarantine"].splitlines()) == 2
    assert json.loads(folders["quarantine"])["kind"] == "no_run"
    assert [note.call for note in served.notes.noted] == [1]


async def test_nothing_is_refused_in_part_before_its_quarantine_is_durable(served: Served, gateway: str) -> None:
    served.store.down = True
    assert (await served.post(request(agent_span()).SerializeToString(), gateway))[0] == 503


async def test_an_agent_cannot_forge_a_transition(served: Served, agent: str) -> None:
    message = request(call_span(transition()), agent_span())
    status, body, _ = await served.post(message.SerializeToString(), agent)
    partial = ExportTraceServiceResponse.FromString(body).partial_success
    assert (status, partial.rejected_spans) == (200, 1)
    assert "only the gateway records calls" in partial.error_message
    assert served.notes.noted == []
    segments = [data for key, data in served.store.objects.items() if "/segments/" in key]
    assert [span.name for span in spans_of(*segments)] == ["think"]


async def test_a_large_body_gets_413(signing_key: str) -> None:
    async with serve_receiver(signing_key, max_body_bytes=1024) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        large = request(call_span(transition(tokens=2000))).SerializeToString()

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(large), 500):
                yield large[start : start + 500]

        for body in (large, pieces(), gzip.compress(b"\0" * 100_000)):
            headers = {"Content-Encoding": "gzip"} if isinstance(body, bytes) and body is not large else {}
            assert (await served.post(body, token, headers))[0] == 413  # type: ignore[arg-type]
        assert served.store.objects == {}


async def test_beyond_the_bytes_in_flight_senders_get_429(signing_key: str) -> None:
    async with serve_receiver(signing_key, max_inflight_bytes=5 * len(BODY) + 1024) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        served.store.gate.clear()
        waiting = [asyncio.create_task(served.post(BODY, token)) for _ in range(20)]
        await asyncio.sleep(0.2)
        refused = [task.result() for task in waiting if task.done()]
        assert refused
        assert {(status, headers["Retry-After"]) for status, _, headers in refused} == {(429, "1")}
        served.store.gate.set()
        statuses = [status for status, *_ in await asyncio.gather(*waiting)]
        assert statuses.count(200) + statuses.count(429) == 20
        assert statuses.count(200) == len(served.notes.noted)
        assert (await served.post(BODY, token))[0] == 200


async def test_a_sender_that_stalls_gives_its_bytes_back(signing_key: str) -> None:
    async with serve_receiver(signing_key, read_timeout_s=0.1) as served:

        async def stalling() -> AsyncIterator[bytes]:
            yield BODY[:10]
            await asyncio.sleep(1)
            yield BODY[10:]

        try:
            answer = await served.post(stalling(), served.tokens.mint(Scope.SPANS, 60))  # type: ignore[arg-type]
        except aiohttp.ClientConnectionError:
            return
        assert answer[0] == 408


async def test_metrics_count_what_happened(served: Served, gateway: str) -> None:
    await served.post(request(call_span(transition()), broken_span(transition(2))).SerializeToString(), gateway)
    async with served.client.get(f"{served.url}/metrics") as answer:
        text = await answer.text()
    for name in (
        "leyden_collector_spans_accepted_total",
        'leyden_collector_spans_refused_total{reason="mismatched"}',
        "leyden_collector_segments_total",
        "leyden_collector_segment_bytes_total",
        'leyden_collector_quarantined_total{kind="mismatched"}',
        "leyden_collector_inflight_bytes",
    ):
        assert any(line.startswith(f"{name} ") for line in text.splitlines()), name
