"""A call read straight from the bytes of its span, if they are laid out just as `encode_call` lays them out.

Protobuf makes two messages of each attribute that is looked at, which is most of the cost of reading a call. So the ten
attributes that come first, the same bytes in each span of an attempt, are read once and known again. The others are
guessed, and written down again: only if that gives the same bytes does the guess count. What is read here is what
protobuf reads; whatever is laid out in another way is left to protobuf.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Transition, checked_transition
from leyden_traces import names
from leyden_traces.calls import REPEATED_KEYS, attributes_of, read_repeated
from leyden_traces.packing import MalformedSpan

_NUMBERS = (names.CALL, names.INPUT_TOKENS, names.OUTPUT_TOKENS)
_PACKED = {
    "prompt_token_ids": names.PROMPT_TOKEN_IDS,
    "response_token_ids": names.RESPONSE_TOKEN_IDS,
    "response_logprobs": names.RESPONSE_LOGPROBS,
}
PLAIN_KEYS = REPEATED_KEYS | {*_NUMBERS, *_PACKED.values(), names.RESPONSE_ID}
"""The attributes that are read here."""
_MOST = 2048
"""Bytes of the attributes that come first, which are kept."""


def _guess(key: str, value: bytes = b"", size: bytes = b".") -> bytes:
    return b"J" + size + b"\n." + re.escape(key.encode()) + b"\x12" + value


# Trace, span and parent id; name, kind and times. Only the name may be of any length.
_HEAD = re.compile(rb'\n\x10.{16}\x12\x08.{8}(?:"\x08(.{8}))?\*(.)([ -~]{0,99})0\x039(.{8})A(.{8})', re.DOTALL)
_FIRST = re.compile(_guess(names.CALL), re.DOTALL)
_NUMBER = rb".\x18([\x80-\xff]{0,4}[\x00-\x7f])"
_OWN = re.compile(
    b"".join(_guess(key, _NUMBER) for key in _NUMBERS)
    + _guess(names.RESPONSE_ID, rb".\n.([ -~]{0,99})")
    + rb"(?=%b)" % _guess(names.PROMPT_TOKEN_IDS, size=b".{1,5}"),
    re.DOTALL,
)


class Plain(NamedTuple):
    """What was read."""

    call: Transition
    """Ids may be negative, and logprobs impossible: see `all_possible`. There are as many as there should be."""
    end: int
    """Where the bytes begin that are no part of the call."""


def decode_plain(span: bytes) -> Plain | None:
    """Return the call that a serialized span begins with, or None if protobuf must read it."""
    head = _HEAD.match(span)
    first = head and _FIRST.search(span, head.end(), head.end() + _MOST)
    if head is None or first is None or head[2][0] != len(head[3]):
        return None
    repeated = _known(span[head.end() : first.start()])
    own = _OWN.match(span, first.start())
    if repeated is None or own is None:
        return None
    number, prompt, response = map(_number_of, own.groups()[:3])
    if own[0] != _written(number, prompt, response, own[4]) or not (prompt and response and 0 < number < 2**31):
        return None
    fields = repeated | {"number": number, "response_id": own[4].decode()}
    at = own.end()
    for (name, key), size in zip(_PACKED.items(), (4 * prompt, 4 * response, 4 * response), strict=True):
        start = _attribute(key, _sized(b":", size), size)
        if not span.startswith(start, at):
            return None
        at += len(start) + size
        fields[name] = span[at - size : at]
    fields["agent"], fields["parent"] = "", head[1].hex() if head[1] else ""
    fields["start_ns"], fields["end_ns"] = int.from_bytes(head[4], "little"), int.from_bytes(head[5], "little")
    if at > len(span) or fields["start_ns"] >= 2**63 or fields["end_ns"] >= 2**63:
        return None
    return Plain(checked_transition(fields), at)


@lru_cache(maxsize=2048)
def _known(attributes: bytes) -> dict[str, Any] | None:
    """Return the fields that serialized attributes say, if these are just the ones that come first."""
    try:
        span = Span.FromString(attributes)
        values = attributes_of(span)
        # The same size: there is nothing else in these bytes.
        whole = Span(attributes=span.attributes).ByteSize() == len(attributes) and len(values) == len(span.attributes)
        return read_repeated(values) if whole and values.keys() == REPEATED_KEYS else None
    except (DecodeError, MalformedSpan):
        return None


def _written(number: int, prompt: int, response: int, response_id: bytes) -> bytes:
    """Return a call's own attributes, but for the tokens, as protobuf writes them."""
    numbers = map(_number, _NUMBERS, (number, prompt, response))
    size = len(response_id)
    return b"".join((*numbers, _attribute(names.RESPONSE_ID, _sized(b"\n", size), size), response_id))


@lru_cache(maxsize=4096)
def _number(key: str, value: int) -> bytes:
    return _attribute(key, b"\x18" + _varint(value))


@lru_cache(maxsize=4096)
def _attribute(key: str, value: bytes, more: int = 0) -> bytes:
    """Return a serialized attribute, but for the last `more` bytes of its value."""
    body = _sized(b"\n", len(key)) + key.encode() + _sized(b"\x12", len(value) + more) + value
    return _sized(b"J", len(body) + more) + body


def _sized(tag: bytes, size: int) -> bytes:
    return tag + _varint(size)


@lru_cache(maxsize=4096)
def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


@lru_cache(maxsize=4096)
def _number_of(varint: bytes) -> int:
    return sum((digit & 0x7F) << 7 * place for place, digit in enumerate(varint))
