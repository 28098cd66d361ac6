"""OTLP in JSON: hex ids, base64 bytes, unknown fields ignored; answers in JSON."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_runtime.tokens import Scope
from support.collector import Served, serve_receiver
from support.spans import agent_span, broken_span, call_span, request, spans_of, transition

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def served(signing_key: str) -> AsyncIterator[Served]:
    async with serve_receiver(signing_key) as served:
        yield served


@pytest.fixture
def gateway(served: Served) -> str:
    return served.tokens.mint(Scope.SPANS, 60)


def as_json(*spans: Span, **resource: str) -> dict[str, Any]:
    """Return a request as the specification writes it: ids in hex, enums as numbers."""
    message = MessageToDict(request(*spans, **resource), use_integers_for_enums=True)
    for span in message["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for one in (span, *span.get("links", ())):
            for key in {"traceId", "spanId", "parentSpanId"} & one.keys():
                one[key] = base64.b64decode(one[key]).hex()
    return message


async def send(served: Served, token: str, message: object) -> tuple[int, dict[str, Any], dict[str, str]]:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    status, answer, headers = await served.post(body, token, JSON)
    assert headers["Content-Type"].startswith("application/json")
    return status, json.loads(answer), headers


async def test_calls_come_in_json_too(served: Served, gateway: str) -> None:
    message = as_json(call_span(transition()))
    message["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["newInVersion2"] = {"a": [1]}
    assert (await send(served, gateway, message))[:2] == (200, {})
    assert spans_of(*served.store.objects.values()) == [call_span(transition())]
    assert [note.call for note in served.notes.noted] == [1]


async def test_the_specifications_own_example_is_taken(served: Served) -> None:
    token = served.tokens.mint(Scope.ATTEMPT, 60, run="run-a", episode="g-0.0", attempt=1)
    span = {
        "traceId": "5B8EFFF798038103D269B633813FC60C",
        "spanId": "EEE19B7EC3C1B174",
        "parentSpanId": "EEE19B7EC3C1B173",
        "name": "I'm a server span",
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": 1544712661000000000,
        "kind": 2,
        "attributes": [{"key": "my.span.attr", "value": {"stringValue": "some value"}}],
        "links": [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}],
        "status": {},
    }
    scope = {"name": "my.scope", "version": "1.0.0", "attributes": [{"key": "n", "value": {"intValue": "7"}}]}
    said = [{"key": "service.name", "value": {"stringValue": "my.service"}}]
    message = {"resourceSpans": [{"resource": {"attributes": said}, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}
    assert (await send(served, token, message))[:2] == (200, {})
    (stored,) = spans_of(*served.store.objects.values())
    assert stored.trace_id.hex() == stored.links[0].trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert (stored.kind, stored.parent_span_id.hex()) == (Span.SPAN_KIND_SERVER, "eee19b7ec3c1b173")
    assert (stored.start_time_unix_nano, stored.end_time_unix_nano) == (1544712660000000000, 1544712661000000000)


async def test_refusals_in_part_and_whole_are_json(served: Served, gateway: str) -> None:
    status, answer, _ = await send(served, gateway, as_json(call_span(transition(1)), broken_span(transition(2))))
    assert (status, answer["partialSuccess"]["rejectedSpans"]) == (200, "1")
    assert "7 logprobs" in answer["partialSuccess"]["errorMessage"]
    status, answer, _ = await send(served, "nonsense", {})
    assert (status, answer["code"]) == (401, 16)
    served.store.down = True
    status, answer, headers = await send(served, gateway, as_json(call_span(transition())))
    assert (status, answer["code"], headers["Retry-After"]) == (503, 14, "1")
    assert answer["details"][0]["retryDelay"] == "1s"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"nothing",
        b"[]",
        b"7",
        b"\xff\xfe",
        b"[" * 100_000,
        {"resourceSpans": 7},
        {"resourceSpans": [7]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": {}}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": -1}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": {"a": 1}}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": 7}]}]}]}]},
    ],
)
async def test_what_is_no_request_gets_400(served: Served, gateway: str, message: object) -> None:
    status, answer, _ = await send(served, gateway, message)
    assert (status, answer["code"]) == (400, 3)
    assert "in JSON" in answer["message"]


async def test_more_values_than_may_be_are_not_even_parsed(signing_key: str) -> None:
    async with serve_receiver(signing_key, max_json_values=1000) as served:
        token = served.tokens.mint(Scope.SPANS, 60)
        status, answer, _ = await send(served, token, b'{"resourceSpans":[' + b"{}," * 5000 + b"{}]}")
        assert (status, answer["code"]) == (413, 3)
        assert (await send(served, token, as_json(agent_span(leyden__run="run-a"))))[:2] == (200, {})
