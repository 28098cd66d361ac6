"""OTLP's JSON encoding: protobuf's, but that ids are hex digits. Pure.

No library reads it into protobuf messages: the ids are written anew, and protobuf's own reader does the rest.
"""

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from leyden_collector.refusal import Refused

_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_SHOWN = 200


def to_protobuf(body: bytes, most: int) -> bytes:
    """Return the request that is JSON in `body` as serialized protobuf.

    Unknown fields are ignored. Raises Refused: 400 if it is none, 413 if it has more than `most` values.
    """
    # Counted in the text: a value takes a byte there, and a hundred once it is parsed.
    if sum(map(body.count, (b"[", b"{", b":", b","))) > most:
        raise Refused(413, f"a body in JSON may have {most} values; send fewer spans at once, or send protobuf")
    try:
        request = msgspec.json.decode(body, type=dict)
        for span in _spans(request):
            _read_ids(span)
        return ParseDict(request, ExportTraceServiceRequest(), ignore_unknown_fields=True).SerializeToString()
    except (msgspec.MsgspecError, ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        detail = f"the body is no ExportTraceServiceRequest in JSON: {error}"
        raise Refused(400, detail.encode(errors="replace").decode()[:_SHOWN]) from error


def from_protobuf(message: Message) -> bytes:
    """Return `message` as JSON."""
    return msgspec.json.encode(MessageToDict(message))


def _spans(request: Any) -> Iterator[dict[str, Any]]:
    """Yield the spans and their links."""
    for group in _children([request], "resourceSpans", "resource_spans"):
        for span in _children(_children([group], "scopeSpans", "scope_spans"), "spans"):
            yield span
            yield from _children([span], "links")


def _children(parents: Any, *keys: str) -> Iterator[dict[str, Any]]:
    for parent in parents:
        for key in keys:
            # What is of another type is left for protobuf's reader to refuse.
            found = parent.get(key) if isinstance(parent, dict) else None
            yield from (child for child in found or () if isinstance(child, dict)) if isinstance(found, list) else ()


def _read_ids(span: dict[str, Any]) -> None:
    for key in _IDS:
        written = span.get(key)
        if isinstance(written, str):
            try:
                span[key] = base64.b64encode(bytes.fromhex(written)).decode()
            except ValueError as error:
                raise ValueError(f"{key} must be hex digits, not {written[:40]!r}") from error
