"""A request is taken apart and put together again unparsed, and nothing gets through that readers choke on."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from leyden_collector import wire
from support.spans import agent_span, attribute, request

TEXT = st.text(max_size=200)
SPANS = st.builds(lambda name: Span(name=name, trace_id=b"t" * 16, span_id=b"s" * 8), TEXT)
SCOPES = st.builds(
    lambda url, name, spans: ScopeSpans(schema_url=url, scope={"name": name}, spans=spans),
    TEXT,
    TEXT,
    st.lists(SPANS, max_size=3),
)
GROUPS = st.builds(
    lambda url, said, scopes: ResourceSpans(
        schema_url=url, resource={"attributes": [attribute("a", said)]}, scope_spans=scopes
    ),
    TEXT,
    TEXT,
    st.lists(SCOPES, max_size=3),
)
REQUESTS = st.builds(lambda groups: ExportTraceServiceRequest(resource_spans=groups), st.lists(GROUPS, max_size=3))


@given(REQUESTS)
def test_taken_apart_and_put_together_it_is_the_same(message: ExportTraceServiceRequest) -> None:
    groups = wire.split(message.SerializeToString(), 1000)
    assert ExportTraceServiceRequest.FromString(wire.join(groups)) == message
    spans = [span for group in groups for scope in group.scopes for span in scope.spans]
    assert [wire.parse_span(span) for span in spans] == [
        span for group in message.resource_spans for scope in group.scope_spans for span in scope.spans
    ]
    for group, expected in zip(groups, message.resource_spans, strict=True):
        assert wire.parse_group(group.head).resource == expected.resource


@settings(max_examples=200)
@given(st.binary(max_size=60) | REQUESTS.map(lambda message: message.SerializeToString()), st.data())
def test_what_is_taken_can_be_read(body: bytes, data: st.DataObject) -> None:
    """Any bytes: either they are refused, or their parts make a request that protobuf reads."""
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        body = body[:at] + data.draw(st.binary(max_size=3)) + body[at + data.draw(st.integers(0, 3)) :]
    try:
        groups = wire.split(body, 1000)
        for group in groups:
            wire.parse_group(group.head)
            for scope in group.scopes:
                wire.parse_scope(scope.head)
                for span in scope.spans:
                    wire.parse_span(span)
    except (wire.NotOtlp, DecodeError):
        return
    ExportTraceServiceRequest.FromString(wire.join(groups))


def test_parts_of_a_resource_that_came_in_two_pieces_are_one() -> None:
    pieces = [ResourceSpans(resource={"attributes": [attribute(key, "v")]}).SerializeToString() for key in "ab"]
    (group,) = wire.split(wire.delimited(1, b"".join(pieces)), 10)
    assert [one.key for one in wire.parse_group(group.head).resource.attributes] == ["a", "b"]


@pytest.mark.parametrize(
    "bomb", [b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x0a\x02\x0a\x00", b"\x78\x00", b"\x0a\x04\x12\x02\x12\x00"]
)
def test_more_parts_than_may_be_are_not_even_looked_at(bomb: bytes) -> None:
    with pytest.raises(wire.TooMany):
        wire.split(bomb * 2_000_000, 100)


def test_so_many_spans_and_no_more() -> None:
    body = request(*[agent_span()] * 5).SerializeToString()
    assert len(wire.split(body, 5)[0].scopes[0].spans) == 5
    with pytest.raises(wire.TooMany):
        wire.split(body, 4)


def nested(levels: int) -> bytes:
    """Return a serialized span with a list in a list in a list."""
    value = b"\x18\x01"
    for _ in range(levels):
        value = wire.delimited(5, wire.delimited(1, value))
    return wire.delimited(9, wire.delimited(1, b"k") + wire.delimited(2, value))


def test_a_span_nests_no_deeper_than_its_segment_can_be_read() -> None:
    """Alone, a span may nest three levels deeper than inside a request: such a one would spoil its whole segment."""
    taken = 0
    for levels in range(40, 52):
        span = nested(levels)
        try:
            wire.parse_span(span)
        except DecodeError:
            continue
        taken = levels
        whole = wire.join([wire.Group(b"", [wire.Scope(b"", [span])])])
        ExportTraceServiceRequest.FromString(whole)
    assert 40 <= taken < 51
    Span.FromString(nested(taken + 1))


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b\x0c",
        b"\x00\x00",
        b"\x0f",
        b"\x08" + b"\xff" * 11,
        b"\x0a\x02\x12\x05",
        b"\x09abc",
    ],
)
def test_what_is_no_message_is_said_so(body: bytes) -> None:
    with pytest.raises(wire.NotOtlp):
        wire.split(body, 10)
