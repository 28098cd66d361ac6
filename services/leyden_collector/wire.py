"""Where the spans of a serialized export request are, and how to put some of them together again. Pure.

The whole request is never parsed at once: two bytes on the wire can be a message of fifty in memory, so that a body of
32 MB could take more than a gigabyte. Here it stays one piece, and its spans are parsed one after the other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

_GROUPS, _SCOPES, _SPANS = 1, 2, 2
"""Field numbers: `resource_spans` of a request, `scope_spans` of these, `spans` of these."""
_MORE = 8
"""How many fields a request may have outside its spans, for each span that it may have."""


class NotOtlp(ValueError):
    """The bytes are no serialized ExportTraceServiceRequest."""


class TooMany(ValueError):
    """There are more spans, or more parts around them, than a request may have."""


@dataclass(slots=True)
class Scope:
    """One ScopeSpans."""

    head: bytes
    """All of its serialized fields but the spans."""
    spans: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """One ResourceSpans."""

    head: bytes
    """All of its serialized fields but the scopes."""
    scopes: list[Scope] = field(default_factory=list)


def split(body: bytes, most: int) -> list[Group]:
    """Return the parts of a serialized request; the spans' own bytes are not looked at.

    Raises:
        NotOtlp: it is none.
        TooMany: it has more than `most` spans.
    """
    walk = _Walk(body, most)
    try:
        return [walk.group(start, end) for start, end in walk.parts(0, len(body), _GROUPS)]
    except IndexError as error:
        raise NotOtlp("the body ends in the middle of a field") from error


def join(groups: Iterable[Group]) -> bytes:
    """Return `groups` as one serialized request."""
    return b"".join(delimited(_GROUPS, group.head + b"".join(map(_scope, group.scopes))) for group in groups)


def parse_group(head: bytes) -> ResourceSpans:
    """Return a group without its scopes. Raises NotOtlp."""
    try:
        return ResourceSpans.FromString(head)
    except DecodeError as error:
        raise NotOtlp("a resource cannot be parsed") from error


def parse_scope(head: bytes) -> ScopeSpans:
    """Return a scope without its spans. Raises NotOtlp."""
    try:
        return ScopeSpans.FromString(head)
    except DecodeError as error:
        raise NotOtlp("a scope cannot be parsed") from error


def parse_span(span: bytes) -> Span:
    """Return one span. Raises google.protobuf.message.DecodeError.

    It is parsed as deep inside a request as it will be read later: how deep messages may nest is counted from outside.
    """
    scope = _prefix(_SPANS, len(span))
    group = _prefix(_SCOPES, len(scope) + len(span))
    request = _prefix(_GROUPS, len(group) + len(scope) + len(span))
    whole = ExportTraceServiceRequest.FromString(b"".join((request, group, scope, span)))
    return whole.resource_spans[0].scope_spans[0].spans[0]


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, start, start of the payload, and end of each field. Raises NotOtlp, IndexError."""
    at = start
    while at < end:
        begin = at
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, begin)
        kind = tag & 7
        payload = at
        if kind == 2:
            size = data[at]
            payload = at = at + 1
            if size >= 0x80:
                size, payload = varint(data, at - 1)
            at = payload + size
        elif kind == 0:
            _, at = varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        if at > end or kind in (3, 4, 6, 7) or tag < 8:
            raise NotOtlp(f"no field of a message begins at byte {begin}")
        yield tag >> 3, kind, begin, payload, at


def delimited(number: int, payload: bytes) -> bytes:
    """Return a field that holds bytes or a message."""
    return _prefix(number, len(payload)) + payload


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and where the next byte is. Raises NotOtlp, IndexError."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise NotOtlp("a number has too many bytes")


class _Walk:
    """One pass over one body; counts what it meets."""

    def __init__(self, body: bytes, most: int) -> None:
        self._body = body
        self._spans = most
        self._others = most * _MORE

    def group(self, start: int, end: int) -> Group:
        head: list[bytes] = []
        scopes = [self._scope(*place) for place in self.parts(start, end, _SCOPES, head)]
        return Group(b"".join(head), scopes)

    def _scope(self, start: int, end: int) -> Scope:
        head: list[bytes] = []
        spans = []
        for first, last in self.parts(start, end, _SPANS, head):
            self._spans -= 1
            if self._spans < 0:
                raise TooMany("spans")
            spans.append(self._body[first:last])
        return Scope(b"".join(head), spans)

    def parts(self, start: int, end: int, wanted: int, head: list[bytes] | None = None) -> Iterator[tuple[int, int]]:
        """Yield where the payloads of field `wanted` are; put the other fields into `head`."""
        body = self._body
        for number, kind, begin, payload, after in fields(body, start, end):
            self._others -= 1
            if self._others < 0:
                raise TooMany("parts")
            if number == wanted and kind == 2:
                yield payload, after
            elif head is not None:
                head.append(body[begin:after])


def _scope(scope: Scope) -> bytes:
    spans = [part for span in scope.spans for part in (_prefix(_SPANS, len(span)), span)]
    return delimited(_SCOPES, scope.head + b"".join(spans))


@lru_cache(maxsize=4096)
def _prefix(number: int, size: int) -> bytes:
    head = bytearray((number << 3 | 2,))
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)
