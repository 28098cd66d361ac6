"""A call survives the wire bit for bit, and nothing malformed becomes a transition."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Transition
from leyden_traces import (
    MalformedSpan,
    check_tokens,
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
        "start_ns": 10,
        "end_ns": 20,
    }
    return Transition(**{**values, **changes})


def spanned(**changes) -> Span:
    t = transition(**changes)
    return encode_call(t, t.start_ns, t.end_ns, trace_id(t.run, t.episode, t.attempt), b"s" * 8, b"")


def attribute(span: Span, key: str):
    return next(a for a in span.attributes if a.key == key).value


ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40)
logprobs = st.floats(max_value=0, allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=60)
@given(ids, st.lists(st.tuples(st.integers(0, 2**31 - 1), logprobs), min_size=1, max_size=40))
def test_a_call_survives_the_wire_bit_for_bit(prompt, response):
    before = transition(
        prompt_token_ids=pack_ids(prompt),
        response_token_ids=pack_ids([i for i, _ in response]),
        response_logprobs=pack_logprobs([p for _, p in response]),
        parent=(b"p" * 8).hex(),
    )
    span = Span.FromString(encode_call(before, 10, 20, b"t" * 16, b"s" * 8, b"p" * 8).SerializeToString())
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


def slow_verdict(prompt: bytes, response: bytes, logprobs: bytes) -> str:
    """Say what `check_tokens` should, token by token."""
    if any(len(packed) % 4 for packed in (prompt, response, logprobs)):
        return "malformed"
    if not prompt or not response:
        return "malformed"
    ids = struct.unpack(f"<{(len(prompt) + len(response)) // 4}i", prompt + response)
    if any(one < 0 for one in ids):
        return "malformed"
    if len(response) != len(logprobs):
        return "mismatched"
    values = struct.unpack(f"<{len(logprobs) // 4}f", logprobs)
    if not all(map(math.isfinite, values)):
        return "nan"
    return "malformed" if any(one > 1e-3 for one in values) else "good"


ints = st.integers(-2, 5) | st.integers(-(2**31), 2**31 - 1)
floats = st.sampled_from([-1.0, 0.0, -0.0, 5e-4, 0.1, math.nan, math.inf, -math.inf, -3e38]) | logprobs
packs = st.lists(ints, max_size=4).map(lambda ids: struct.pack(f"<{len(ids)}i", *ids))


@settings(max_examples=400)
@given(packs, packs, st.lists(floats, max_size=4).map(lambda p: struct.pack(f"<{len(p)}f", *p)), st.integers(0, 30))
def test_the_fast_check_says_what_the_slow_one_says(prompt, response, logprobs, cut):
    packed = [prompt, response, logprobs]
    if cut < 3:
        packed[cut] = packed[cut][:-1]
    try:
        check_tokens(*packed)
        verdict = "good"
    except MalformedSpan as error:
        verdict = error.kind
    assert verdict == slow_verdict(*packed)


def test_two_cut_halves_make_no_whole():
    """The ids are looked at together: three bytes and five are no two ids."""
    with pytest.raises(MalformedSpan, match="cut"):
        check_tokens(b"\x01\x00\x00", b"\x00\x01\x00\x00\x00", pack_logprobs([-1.0]))


def test_a_calls_times_are_its_spans():
    assert (decode_call(spanned()).start_ns, decode_call(spanned()).end_ns) == (10, 20)
    span = spanned()
    span.end_time_unix_nano = 2**63
    with pytest.raises(MalformedSpan, match="time"):
        decode_call(span)
