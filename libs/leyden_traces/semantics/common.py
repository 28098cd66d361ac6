"""What all conventions say in the same way: identity, times, and how a span failed."""

import hashlib
from typing import Any

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from leyden_traces.semantics.messages import Message, asked_tools, odd_arguments, write
from leyden_traces.semantics.values import Attributes, cut


def process_of(resource: Resource) -> str:
    """Return a digest of a resource, whatever the order of its attributes."""
    parts = sorted(attribute.SerializeToString(deterministic=True) for attribute in resource.attributes)
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def identity(span: Span, process: str) -> dict[str, Any]:
    """Return the fields that do not depend on the convention."""
    attributes = [Attributes(event.attributes) for event in span.events if event.name == "exception"]
    failed = span.status.code == Status.STATUS_CODE_ERROR
    said = [span.status.message, *(found.text("exception.message", "exception.type") for found in attributes)]
    return {
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex() if len(span.parent_span_id) == 8 else "",
        "process": process,
        "start_ns": span.start_time_unix_nano,
        "end_ns": max(span.start_time_unix_nano, span.end_time_unix_nano),
        "failed": failed,
        "error": cut(next(filter(None, said), "")) if failed else "",
    }


def reply_fields(messages: list[Message], reply: list[Message]) -> dict[str, Any]:
    """Return the fields of an LLM call with this text."""
    return {
        "messages": write(messages),
        "reply": write(reply),
        "asked_tools": asked_tools(reply),
        "odd_arguments": odd_arguments(reply),
    }
