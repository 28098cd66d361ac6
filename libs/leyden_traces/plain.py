"""A call read straight from the bytes of its span, if they are laid out just as `encode_call` lays them out.

Protobuf makes two messages of each attribute that is looked at, which is most of the cost of reading a call. So the ten
attributes that come first, the same bytes in each span of an attempt, are read once and known again. The others are
guessed, and written down again: only if that gives the same bytes does the guess count. What is read here is what
protobuf reads; whatever is laid out in another way is left to protobuf.
"""

import re
import struct
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
_HEAD = re.compile(rb'\n\x10.{16}\x12\x08.{8}(?:"\x08(.{8}))?\*(.)([ -~]{0,99})0\x039.{8}A.{8}', re.DOTALL)
_TIMES = struct.Struct("<QxQ")
"""The times with which that ends, and the tag between them."""
_FIRST = names.CALL.encode() + b"\x12"
_BEFORE = len(b"J.\n.")
"""Of an attribute, before its key."""
_NUMBER = rb".\x18([\x80-\xff]{0,4}[\x00-\x7f])"
_OWN = re.compile(
    b"".join(_guess(key, _NUMBER) for key in _NUMBERS)
    + _guess(names.RESPONSE_ID, rb".\n.([ -~]{0,99})")
    + rb"(?=%b)" % _guess(names.PROMPT_TOKEN_IDS, size=b".{1,5}"),
    re.DOTALL,
)
_SIZE = rb"([\x80-\xff]{0,2}[\x00-\x7f])"
_TEXT = re.compile(b"J" + _SIZE + rb"\n(.)([!-~]{1,99})\x12" + _SIZE + b"\n" + _SIZE, re.DOTALL)
"""An attribute, but for the text that is its value."""


class Plain(NamedTuple):
    """What was read."""

    call: Transition
    """Ids may be negative, and logprobs impossible: see `all_possible`. There are as many as there should be."""
    end: int
    """Where the bytes begin that are no part of the call."""


def decode_plain(span: bytes) -> Plain | None:
    """Return the call that a serialized span begins with, or None if protobuf must read it."""
    head = _HEAD.match(span)
    if head is None:
        return None
    at = head.end()
    first = span.find(_FIRST, at, at + _MOST) - _BEFORE
    own = _OWN.match(span, first) if first >= at else None
    repeated = _known(span[at:first]) if own else None
    if own is None or repeated is None:
        return None
    parent, name_size, name = head.groups()
    *numbers, response_id = own.groups()
    number, prompt, response = map(_number_of, numbers)
    if name_size[0] != len(name) or own[0] != _written(number, prompt, response, response_id):
        return None
    start_ns, end_ns = _TIMES.unpack_from(span, at - _TIMES.size)
    if not (prompt and response and 0 < number < 2**31 and start_ns < 2**63 and end_ns < 2**63):
        return None
    fields = {
        **repeated,
        "number": number,
        "response_id": response_id.decode(),
        "start_ns": start_ns,
        "end_ns": end_ns,
        "parent": parent.hex() if parent else "",
        "agent": "",
    }
    at = own.end()
    for (field, key), count in zip(_PACKED.items(), (prompt, response, response), strict=True):
        start = _packed(key, count)
        if not span.startswith(start, at):
            return None
        begin = at + len(start)
        at = begin + 4 * count
        fields[field] = span[begin:at]
    return Plain(checked_transition(fields), at) if at <= len(span) else None


def text_keys(span: bytes, at: int, most: int) -> list[str] | None:
    """Return the keys of a span's attributes from byte `at` to its end, if they are texts and at most `most`.

    None: there is something else, or they are laid out in another way.
    """
    keys: list[str] = []
    while at < len(span):
        text = _TEXT.match(span, at)
        if text is None or len(keys) == most:
            return None
        whole, key_size, key, value, size = text.groups()
        begin, at = text.end(), text.end() + _number_of(size)
        ends = (text.end(1) + _number_of(whole), text.end(4) + _number_of(value))
        if key_size[0] != len(key) or ends != (at, at) or at > len(span) or not _is_text(span[begin:at]):
            return None
        keys.append(key.decode())
    return keys


def _is_text(value: bytes) -> bool:
    try:
        return value.isascii() or bool(value.decode())
    except UnicodeDecodeError:
        return False


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
    return b"".join((*numbers, _text(names.RESPONSE_ID, len(response_id)), response_id))


@lru_cache(maxsize=4096)
def _number(key: str, value: int) -> bytes:
    return _attribute(key, b"\x18" + _varint(value))


@lru_cache(maxsize=4096)
def _text(key: str, size: int) -> bytes:
    """Return a serialized attribute, but for the text of `size` bytes that is its value."""
    return _attribute(key, _sized(b"\n", size), size)


@lru_cache(maxsize=4096)
def _packed(key: str, count: int) -> bytes:
    """Return a serialized attribute, but for the `count` packed ids or logprobs that are its value."""
    return _attribute(key, _sized(b":", 4 * count), 4 * count)


def _attribute(key: str, value: bytes, more: int = 0) -> bytes:
    """Return a serialized attribute, but for the last `more` bytes of its value."""
    body = _sized(b"\n", len(key)) + key.encode() + _sized(b"\x12", len(value) + more) + value
    return _sized(b"J", len(body) + more) + body


def _sized(tag: bytes, size: int) -> bytes:
    return tag + _varint(size)


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
