"""A span beyond the limits is refused with the reason; its neighbours are kept."""

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector import wire
from leyden_collector.admission import Share, admit
from leyden_collector.limits import check_serialized
from leyden_collector.refusal import Refusal
from leyden_collector.settings import CollectorSettings
from leyden_runtime.tokens import Claims, Scope
from support.spans import agent_span, call_span, request, spans_of, transition

AGENT = Claims(Scope.ATTEMPT, "default", "run-a", "g-0.0", 1)
LIMITS = {
    "max_span_bytes": 100_000,
    "max_span_parts": 20,
    "max_value_bytes": 5000,
    "max_name_bytes": 100,
    "max_resource_bytes": 2000,
    "quarantine_span_bytes": 64,
}


def decide(body: bytes, claims: Claims = AGENT) -> list[Share]:
    settings = CollectorSettings.model_validate(LIMITS)
    return admit(body, claims, settings.span_limits, most=settings.max_spans, shown=settings.quarantine_span_bytes)


def valued(value: AnyValue) -> Span:
    span = agent_span()
    span.attributes.append(KeyValue(key="large", value=value))
    return span


def many(parts: str, count: int) -> Span:
    span = agent_span()
    for number in range(count):
        {"attributes": lambda key: span.attributes.add(key=key), "events": lambda key: span.events.add(name=key)}.get(
            parts, lambda _: span.links.add()
        )(f"k{number}")
    return span


LARGE = {
    "bytes": agent_span("x", note="y" * 100_001),
    "text": valued(AnyValue(string_value="y" * 6000)),
    "packed": valued(AnyValue(bytes_value=b"y" * 6000)),
    "list": valued(AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)] * 2000))),
    "attributes": many("attributes", 21),
    "events": many("events", 21),
    "links": many("links", 21),
    "name": agent_span("n" * 101),
    "key": agent_span(**{"k" * 101: "v"}),
    "many and large": many("links", 40_000),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_span_beyond_a_limit_is_refused_alone(kind: str) -> None:
    (share,) = decide(request(agent_span("before"), LARGE[kind], agent_span("after")).SerializeToString())
    assert [span.name for span in spans_of(share.otlp)] == ["before", "after"]
    (refused,) = share.refused
    assert refused.kind == "oversize"
    whole = LARGE[kind].SerializeToString()
    assert (refused.size, refused.span) == (len(whole), whole[:64])


def test_too_many_parts_are_counted_before_they_are_parsed() -> None:
    limits = CollectorSettings.model_validate(LIMITS).span_limits
    with pytest.raises(Refusal, match="20 attributes"):
        check_serialized(LARGE["many and large"].SerializeToString(), limits)
    check_serialized(agent_span(note="y" * 90_000).SerializeToString(), limits)


def test_a_span_at_every_limit_is_kept() -> None:
    span = many("attributes", 10)
    span.name = "n" * 100
    span.attributes.add(key="k" * 100).value.string_value = "y" * 4900
    span.events.add()
    span.links.add()
    (share,) = decide(request(span).SerializeToString())
    assert (share.kept, share.refused) == (1, [])


def test_the_spans_of_a_resource_that_says_too_much_are_refused() -> None:
    message = request(agent_span(), note="y" * 2001)
    message.MergeFrom(request(agent_span("other")))
    (share,) = decide(message.SerializeToString())
    assert [one.kind for one in share.refused] == ["oversize"]
    assert [span.name for span in spans_of(share.otlp)] == ["other"]


def test_a_span_that_is_no_message_is_refused_alone() -> None:
    garbage = b"\x0a\x7fabc"
    groups = [wire.Scope(b"", [agent_span().SerializeToString(), garbage])]
    (share,) = decide(wire.join([wire.Group(b"", groups)]))
    assert (share.kept, [one.kind for one in share.refused]) == (1, ["malformed"])
    assert share.refused[0].span == garbage


@pytest.mark.parametrize("key", ["leyden.run", "leyden.episode", "leyden.attempt"])
def test_a_span_says_once_whose_it_is(key: str) -> None:
    """Otherwise one reader would take the first, and another the last."""
    span = agent_span(leyden__run="run-a", leyden__episode="g-0.0", leyden__attempt="1")
    said = next(one for one in span.attributes if one.key == key)
    span.attributes.insert(0, KeyValue(key=key, value=AnyValue(string_value="run-b")))
    assert said in span.attributes
    (share,) = decide(request(span).SerializeToString())
    assert [one.kind for one in share.refused] == ["malformed"]


def test_whose_agents_have_spans_is_told() -> None:
    (share,) = decide(request(agent_span(), agent_span()).SerializeToString())
    assert share.agents == {("g-0.0", 1)}
    gateway = Claims(Scope.SPANS, "default")
    said = {"leyden__run": "run-a", "leyden__episode": "g-0.1"}
    spans = [
        agent_span(leyden__attempt=2, **said),
        agent_span(**said),
        agent_span(leyden__attempt="x", **said),
        call_span(transition()),
    ]
    (share,) = decide(request(*spans, leyden__attempt="3").SerializeToString(), gateway)
    assert share.agents == {("g-0.1", 2), ("g-0.1", 3)}
    assert (share.kept, len(share.calls)) == (4, 1)
