"""The short way to a gateway's call decides what the long way decides."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector import admission, wire
from leyden_collector.admission import admit
from leyden_collector.limits import SpanLimits
from leyden_collector.plain_calls import plain_calls
from leyden_runtime.tokens import Claims, Scope
from leyden_traces import names
from support.spans import call_span, request, transition

GATEWAY = Claims(Scope.SPANS, "default", None, None, None)
LIMITS = SpanLimits(span_bytes=2**20, parts=18, value_bytes=2**20, name_bytes=100, resource_bytes=2**16)
NESTED = AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="x")]))
KEYS = st.sampled_from([names.RUN, names.EPISODE, names.CALL, names.PROMPT_TOKEN_IDS, "more", "other", "k" * 101])
VALUES = st.sampled_from([AnyValue(), AnyValue(string_value="run-b"), AnyValue(int_value=2), NESTED])
EXTRAS = st.lists(st.builds(lambda key, value: KeyValue(key=key, value=value), KEYS, VALUES), max_size=5)


def nested(levels: int) -> bytes:
    """Return a serialized attribute with a list in a list in a list."""
    value = b"\x18\x01"
    for _ in range(levels):
        value = wire.delimited(5, wire.delimited(1, value))
    return wire.delimited(9, wire.delimited(1, b"k") + wire.delimited(2, value))


TAILS = st.sampled_from(
    [
        b"",
        Span(name="other").SerializeToString(),
        Span(parent_span_id=b"p" * 8).SerializeToString(),
        Span(events=[Span.Event(name="e")]).SerializeToString(),
        b'"\x00',  # a parent that is empty
        b"J\x05\n\x01",
        b"\x9a",
        *map(nested, range(44, 52)),  # some nest deeper than a segment can be read
    ]
)


def decided(body: bytes) -> list[object]:
    shares = admit(body, GATEWAY, LIMITS, most=10, shown=100)
    return [(one.run, one.kept, one.otlp, one.calls, one.agents, one.refused) for one in shares]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(EXTRAS, TAILS)
def test_both_ways_decide_the_same(monkeypatch: pytest.MonkeyPatch, extras: list[KeyValue], tail: bytes) -> None:
    span = call_span(transition())
    span.attributes.extend(extras)
    data = span.SerializeToString() + tail
    body = wrapped(data)
    short = decided(body)
    with monkeypatch.context() as patch:
        patch.setattr(admission, "plain_calls", lambda spans, limits: [None] * len(spans))
        assert decided(body) == short


def wrapped(span: bytes) -> bytes:
    """Return a request of one serialized span."""
    scope = wire.delimited(2, span)
    return wire.delimited(1, wire.delimited(2, scope))


def test_a_gateways_call_goes_the_short_way() -> None:
    span = call_span(transition())
    assert plain_calls([span.SerializeToString()], LIMITS) == [transition()]
    span.attributes.append(KeyValue(key="more", value=AnyValue(string_value="x")))
    assert plain_calls([span.SerializeToString()], LIMITS) == [transition()]


def test_an_attempts_own_token_makes_no_call() -> None:
    claims = Claims(Scope.ATTEMPT, "default", "run-a", "g-0.0", 1)
    (share,) = admit(request(call_span(transition())).SerializeToString(), claims, LIMITS, most=10, shown=100)
    assert [one.kind for one in share.refused] == ["forged"]


@pytest.mark.parametrize("limit", [{"parts": 17}, {"name_bytes": 99}, {"value_bytes": 100}])
def test_what_may_be_beyond_a_limit_goes_the_long_way(limit: dict[str, int]) -> None:
    span = call_span(transition())
    span.attributes.append(KeyValue(key="more", value=AnyValue(string_value="x")))
    assert plain_calls([span.SerializeToString()], replace(LIMITS, **limit)) == [None]


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt_token_ids": np.asarray([1, -1], "<i4").tobytes()},
        {"response_token_ids": np.full(8, -1, "<i4").tobytes()},
        *({"response_logprobs": np.full(8, value, "<f4").tobytes()} for value in (1.0, np.nan, np.inf, -np.inf)),
    ],
)
def test_of_impossible_tokens_only_their_own_span_is_refused(wrong: dict[str, bytes]) -> None:
    bad = transition(2).model_copy(update=wrong)
    message = request(call_span(transition(1)), call_span(bad), call_span(transition(3)))
    (share,) = admit(message.SerializeToString(), GATEWAY, LIMITS, most=10, shown=100)
    assert [call.number for call in share.calls] == [1, 3]
    assert len(share.refused) == 1
