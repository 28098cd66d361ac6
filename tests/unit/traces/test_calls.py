"""A call survives the wire bit for bit, and nothing malformed becomes a transition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Transition
from leyden_traces import (
    MalformedSpan,
    decode_call,
    encode_call,
    is_call,
    names,
    pack_ids,
    pack_logprobs,
    span_id,
    trace_id,
    unpack_ids,
    unpack_logprobs,
)


def transition(**changes) -> Transition:
    values = {
        "run": "r1",
        "episode": "g1.0",
        "attempt": 2,
        "number": 3,
        "role": "policy",
        "policy_version": 4,
        "prompt_token_ids": pack_ids([1, 2, 3]),
        "response_token_ids": pack_ids([4, 5]),
        "response_logprobs": pack_logprobs([-0.1, -2.5]),
        "temperature": 0.7,
        "finish_reason": "tool_calls",
        "response_id": "chatcmpl-1",
        "replica": "replica-0",
    }
    return Transition(**{**values, **changes})


def spanned(**changes) -> Span:
    t = transition(**changes)
    return encode_call(t, 10, 20, trace_id(t.run, t.episode, t.attempt), b"s" * 8, b"")


def attribute(span: Span, key: str):
    return next(a for a in span.attributes if a.key == key).value


ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40)
logprobs = st.floats(max_value=0, allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=60, deadline=None)
@given(ids, st.lists(st.tuples(st.integers(0, 2**31 - 1), logprobs), min_size=1, max_size=40))
def test_a_call_survives_the_wire_bit_for_bit(prompt, response):
    before = transition(
        prompt_token_ids=pack_ids(prompt),
        response_token_ids=pack_ids([i for i, _ in response]),
        response_logprobs=pack_logprobs([p for _, p in response]),
    )
    span = Span.FromString(encode_call(before, 1, 2, b"t" * 16, b"s" * 8, b"p" * 8).SerializeToString())
    after = decode_call(span)
    assert after == before
    assert unpack_ids(after.prompt_token_ids).tolist() == prompt
    assert unpack_logprobs(after.response_logprobs).tolist() == [p for _, p in response]


def test_bytes_are_little_endian_whatever_the_machine():
    assert pack_ids([1]) == b"\x01\x00\x00\x00"
    assert pack_logprobs([-1.0]) == b"\x00\x00\x80\xbf"


def test_the_span_reads_well_in_any_trace_viewer():
    span = spanned()
    assert (span.name, span.start_time_unix_nano, span.end_time_unix_nano) == ("chat policy", 10, 20)
    assert attribute(span, "gen_ai.usage.input_tokens").int_value == 3
    assert attribute(span, "gen_ai.usage.output_tokens").int_value == 2
    assert attribute(span, "gen_ai.operation.name").string_value == "chat"


def test_ids_of_trace_and_span_are_fixed_by_the_call():
    assert trace_id("r", "e", 1) == trace_id("r", "e", 1) != trace_id("r", "e", 2)
    assert span_id("r", "e", 1, 1) == span_id("r", "e", 1, 1) != span_id("r", "e", 1, 2)
    assert (len(trace_id("r", "e", 1)), len(span_id("r", "e", 1, 1))) == (16, 8)


def test_an_agents_own_span_is_no_call():
    assert is_call(spanned())
    assert not is_call(Span(name="my tool"))


def test_lists_of_integers_and_doubles_are_read_too():
    span = spanned()
    for key, values, kind in (
        (names.PROMPT_TOKEN_IDS, [1, 2, 3], "int_value"),
        (names.RESPONSE_TOKEN_IDS, [4, 5], "int_value"),
        (names.RESPONSE_LOGPROBS, [-0.1, -2.5], "double_value"),
    ):
        value = attribute(span, key)
        value.ClearField("bytes_value")
        for number in values:
            setattr(value.array_value.values.add(), kind, number)
    assert decode_call(span) == transition()


REQUIRED = [
    names.RUN,
    names.EPISODE,
    names.ATTEMPT,
    names.CALL,
    names.ROLE,
    names.POLICY_VERSION,
    names.PROMPT_TOKEN_IDS,
    names.RESPONSE_TOKEN_IDS,
    names.RESPONSE_LOGPROBS,
    names.TEMPERATURE,
    names.FINISH_REASON,
    names.RESPONSE_ID,
    names.REPLICA,
]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_attribute_is_named(key):
    span = spanned()
    span.attributes.remove(next(a for a in span.attributes if a.key == key))
    with pytest.raises(MalformedSpan, match=f"{key} is missing"):
        decode_call(span)


@pytest.mark.parametrize("key", REQUIRED)
def test_an_attribute_of_the_wrong_type_is_named(key):
    span = spanned()
    attribute(span, key).bool_value = True
    with pytest.raises(MalformedSpan, match=f"{key} must be .* not bool_value"):
        decode_call(span)


@pytest.mark.parametrize(
    ("key", "kind", "value", "reason"),
    [
        (names.ATTEMPT, "int_value", 0, "attempt must be from 1"),
        (names.CALL, "int_value", 0, "call must be from 1"),
        (names.CALL, "int_value", 2**40, "call must be from 1"),
        (names.POLICY_VERSION, "int_value", -1, "policy_version must be from 0"),
        (names.RUN, "string_value", "../other", "leyden.run"),
        (names.EPISODE, "string_value", "a/b", "leyden.episode"),
        (names.ROLE, "string_value", "", "leyden.role"),
        (names.TEMPERATURE, "double_value", math.nan, "temperature"),
        (names.TEMPERATURE, "double_value", -1.0, "temperature"),
        (names.FINISH_REASON, "string_value", "abort", "finish_reason"),
        (names.RESPONSE_TOKEN_IDS, "bytes_value", pack_ids([4]), "1 response token ids but 2 logprobs"),
        (names.RESPONSE_TOKEN_IDS, "bytes_value", pack_ids([4, 5])[:-1], "cut: 7 bytes"),
        (names.RESPONSE_TOKEN_IDS, "bytes_value", b"", "response has no tokens"),
        (names.PROMPT_TOKEN_IDS, "bytes_value", b"", "prompt has no tokens"),
        (names.PROMPT_TOKEN_IDS, "bytes_value", b"\xff" * 4, "negative"),
        (names.RESPONSE_TOKEN_IDS, "bytes_value", pack_ids([2**31 - 1]) + b"\0\0\0\x80", "negative"),
        (names.RESPONSE_LOGPROBS, "bytes_value", pack_logprobs([-1, math.nan]), "not finite"),
        (names.RESPONSE_LOGPROBS, "bytes_value", pack_logprobs([-1, -math.inf]), "not finite"),
        (names.RESPONSE_LOGPROBS, "bytes_value", pack_logprobs([-1, 0.5]), "above 0"),
    ],
)
def test_a_value_out_of_range_is_refused(key, kind, value, reason):
    span = spanned()
    setattr(attribute(span, key), kind, value)
    with pytest.raises(MalformedSpan, match=reason):
        decode_call(span)


def test_an_attribute_given_twice_is_refused():
    span = spanned()
    span.attributes.add(key=names.RUN).value.string_value = "r2"
    with pytest.raises(MalformedSpan, match="twice"):
        decode_call(span)


@pytest.mark.parametrize("ids", [[-1], [2**31], [2**70], [1.5], ["7"], [None], [[1]], [[1], 2], "12", 7])
def test_ids_that_are_none_are_not_packed(ids):
    with pytest.raises(MalformedSpan):
        pack_ids(ids)


@pytest.mark.parametrize("logprobs", [["x"], [None], [[-1.0]], 7])
def test_logprobs_that_are_none_are_not_packed(logprobs):
    with pytest.raises(MalformedSpan):
        pack_logprobs(logprobs)


def test_a_float32_logprob_written_as_decimal_comes_back_exact():
    exact = np.float32(-0.30102998)
    assert unpack_logprobs(pack_logprobs([float(repr(float(exact)))]))[0] == exact
