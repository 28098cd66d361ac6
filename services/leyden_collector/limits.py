"""How large a span may be."""

from dataclasses import dataclass

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector import wire
from leyden_collector.refusal import Refusal

SMALL = 64 * 1024
"""So little can be parsed unseen."""
_SINGLE = len(Span.DESCRIPTOR.fields)
"""A span's fields that are no attribute, event or link are fewer."""


@dataclass(frozen=True, slots=True)
class SpanLimits:
    """What one span may hold; see the collector's settings."""

    span_bytes: int
    parts: int
    value_bytes: int
    name_bytes: int
    resource_bytes: int


def check_serialized(span: bytes, limits: SpanLimits) -> None:
    """Refuse what would take too much memory to parse. Raises Refusal."""
    if len(span) > limits.span_bytes:
        raise Refusal("oversize", f"a span may have {limits.span_bytes} bytes, not {len(span)}")
    if len(span) > SMALL:
        _check_parts(_count(span, limits.parts), limits)


def check_parsed(span: Span, attributes: dict[str, AnyValue], size: int, limits: SpanLimits) -> None:
    """Refuse a span of `size` bytes with too many parts, or with too large ones. Raises Refusal."""
    _check_parts(len(span.attributes) + len(span.events) + len(span.links), limits)
    longest = max(map(len, attributes), default=0)
    if max(longest, len(span.name)) > limits.name_bytes:
        raise Refusal("oversize", f"a name may have {limits.name_bytes} characters")
    if size > limits.value_bytes:
        _check_values(attributes, limits)


def check_head(head: bytes, limits: SpanLimits) -> None:
    """Refuse the spans of a resource or a scope that says too much. Raises Refusal."""
    if len(head) > limits.resource_bytes:
        raise Refusal("oversize", f"a resource or a scope may have {limits.resource_bytes} bytes, not {len(head)}")


def _check_values(attributes: dict[str, AnyValue], limits: SpanLimits) -> None:
    for key, value in attributes.items():
        size = value.ByteSize()
        if size > limits.value_bytes:
            raise Refusal("oversize", f"{key[:100]} may have {limits.value_bytes} bytes, not {size}")


def _check_parts(count: int, limits: SpanLimits) -> None:
    if count > limits.parts:
        raise Refusal("oversize", f"a span may have {limits.parts} attributes, events and links together")


def _count(span: bytes, most: int) -> int:
    """Return how many attributes, events and links there are, or a number above `most`."""
    count = -_SINGLE
    try:
        for count, _ in enumerate(wire.fields(span, 0, len(span)), 1 - _SINGLE):
            if count > most:
                break
    except (wire.NotOtlp, IndexError) as error:
        raise Refusal("malformed", "the span cannot be parsed") from error
    return count
