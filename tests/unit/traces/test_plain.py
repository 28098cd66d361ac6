"""A call read straight from its bytes is the call that protobuf reads; what is laid out otherwise is left to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Transition
from leyden_traces import MalformedSpan, all_possible, decode_call, decode_plain, encode_call, names, text_keys
from support.spans import call_span, transition

IDS = st.integers(0, 2**31 - 1)
PRINTED = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), max_size=99)


@st.composite
def calls(draw: st.DrawFn) -> Transition:
    response = draw(st.lists(IDS, min_size=1, max_size=40))
    return transition(
        draw(st.integers(1, 2**31 - 1)),
        run=draw(st.from_regex(r"[a-z0-9][a-z0-9-]{0,47}", fullmatch=True)),
        episode=draw(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,90}", fullmatch=True)),
        attempt=draw(st.integers(1, 2**31 - 1)),
        role=draw(st.from_regex(r"[a-z0-9][a-z0-9_]{0,31}", fullmatch=True)),
        policy_version=draw(IDS),
        prompt_token_ids=np.asarray(draw(st.lists(IDS, min_size=1, max_size=600)), "<i4").tobytes(),
        response_token_ids=np.asarray(response, "<i4").tobytes(),
        response_logprobs=np.full(len(response), -0.25, "<f4").tobytes(),
        temperature=draw(st.floats(0, 2)),
        finish_reason=draw(st.sampled_from(["stop", "length", "tool_calls", "cut"])),
        response_id=draw(PRINTED),
        replica=draw(PRINTED),
        start_ns=draw(st.integers(1, 2**63 - 1)),
        end_ns=draw(st.integers(1, 2**63 - 1)),
        parent=draw(st.just("") | st.binary(min_size=8, max_size=8).map(bytes.hex)),
    )


def spans(call: Transition) -> Span:
    return encode_call(call, call.start_ns, call.end_ns, b"t" * 16, b"s" * 8, bytes.fromhex(call.parent))


@settings(max_examples=150)
@given(calls())
def test_it_is_what_protobuf_reads(call: Transition) -> None:
    span = spans(call)
    assert decode_call(span) == call
    assert decode_plain(span.SerializeToString()) == (call, span.ByteSize())


@settings(max_examples=400)
@given(calls(), st.data())
def test_changed_bytes_are_read_as_protobuf_reads_them_or_not_at_all(call: Transition, data: st.DataObject) -> None:
    span = bytearray(spans(call).SerializeToString())
    at = data.draw(st.integers(0, min(len(span), 700) - 1))
    span[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    plain = decode_plain(bytes(span))
    if plain is None:
        return
    read, told = Span.FromString(bytes(span[: plain.end])), plain.call
    if all_possible([told.prompt_token_ids, told.response_token_ids], [told.response_logprobs]):
        assert decode_call(read) == told
    else:
        with pytest.raises(MalformedSpan):
            decode_call(read)


@pytest.mark.parametrize("cut", range(0, 900, 7))
def test_a_span_that_is_cut_is_not_read(cut: int) -> None:
    span = call_span(transition(tokens=20)).SerializeToString()
    assert decode_plain(span[: min(cut, len(span) - 1)]) is None


def test_what_comes_after_is_told() -> None:
    span = call_span(transition())
    size = span.ByteSize()
    span.attributes.append(KeyValue(key="more", value=AnyValue(string_value="x")))
    assert decode_plain(span.SerializeToString()) == (transition(), size)


def test_what_is_wrong_is_left_to_protobuf() -> None:
    for wrong in (
        {"response_logprobs": b""},
        {"prompt_token_ids": b""},
        {"attempt": 0},
        {"run": "No"},
        {"temperature": -1.0},
        {"finish_reason": "abort"},
        {"number": 0},
        {"end_ns": 2**63},
    ):
        span = call_span(transition().model_copy(update=wrong))
        with pytest.raises(MalformedSpan):
            decode_call(span)
        assert decode_plain(span.SerializeToString()) is None, wrong


@pytest.mark.parametrize("key", [names.RUN, names.OPERATION, names.TEMPERATURE])
def test_an_attribute_that_comes_twice_at_the_start_is_left_to_protobuf(key: str) -> None:
    span = call_span(transition())
    attributes = list(span.attributes)
    again = next(one for one in attributes if one.key == key)
    del span.attributes[:]
    span.attributes.extend([again, *attributes])
    assert decode_plain(span.SerializeToString()) is None


@pytest.mark.parametrize("size", [10, 12, 200])
def test_a_name_of_another_size_is_left_to_protobuf(size: int) -> None:
    span = bytearray(call_span(transition()).SerializeToString())
    span[span.index(b"chat policy") - 1] = size
    assert decode_plain(bytes(span)) is None


def texts(values: dict[str, str]) -> bytes:
    attributes = [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]
    return Span(attributes=attributes).SerializeToString()


@given(st.dictionaries(st.text("abc.", min_size=1, max_size=99), st.text(max_size=300), max_size=4))
def test_texts_are_told_by_their_keys(values: dict[str, str]) -> None:
    before = b"what comes before"
    assert text_keys(before + texts(values), len(before), 4) == list(values)
    assert text_keys(texts({**values, "one more": ""}), 0, len(values)) is None


@settings(max_examples=500)
@given(st.dictionaries(st.text("ab", min_size=1), st.text(max_size=200), min_size=1, max_size=3), st.data())
def test_changed_texts_are_what_protobuf_reads_or_nothing(values: dict[str, str], data: st.DataObject) -> None:
    span = bytearray(texts(values))
    for _ in range(data.draw(st.integers(1, 3))):
        span[data.draw(st.integers(0, len(span) - 1))] = data.draw(st.integers(0, 255))
    keys = text_keys(bytes(span), 0, 9)
    if keys is not None:
        assert keys == [one.key for one in all_texts(bytes(span))]


def all_texts(span: bytes) -> list[KeyValue]:
    read = Span.FromString(span)
    assert Span(attributes=read.attributes) == read
    assert all(one.value.HasField("string_value") for one in read.attributes)
    return list(read.attributes)


@pytest.mark.parametrize("cut", [1, 2, 50])
def test_a_text_that_is_cut_is_not_told(cut: int) -> None:
    assert text_keys(texts({"a": "b" * 200})[:-cut], 0, 9) is None


def test_what_is_no_text_is_not_told() -> None:
    broken = texts({"a": "xx"}).replace(b"xx", b"\xff\xff")
    number = Span(attributes=[KeyValue(key="a", value=AnyValue(int_value=1))]).SerializeToString()
    for span in (broken, number, b"J\x03\n\x01a", texts({"\u00e9": "x"})):
        assert text_keys(span, 0, 9) is None
