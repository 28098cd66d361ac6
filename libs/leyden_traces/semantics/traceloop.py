"""OpenLLMetry (Traceloop): its own spans of workflows, tasks, agents and tools. Its LLM spans follow `genai`."""

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_traces.semantics.fact import Kind
from leyden_traces.semantics.tools import used
from leyden_traces.semantics.values import MAX_NAME, Attributes, cut

_KINDS: dict[str, Kind] = {"tool": "tool", "agent": "agent"}


def read(span: Span, attributes: Attributes) -> dict[str, Any] | None:
    """Return what the span says beyond its identity, or None if it is not written in this convention."""
    said = attributes.text("traceloop.span.kind")
    if not said:
        return None
    kind = _KINDS.get(said, "plain")
    if kind == "plain":
        return {"kind": kind}
    name = attributes.name("traceloop.entity.name") or cut(span.name, MAX_NAME)
    given, made = attributes.get("traceloop.entity.input"), attributes.get("traceloop.entity.output")
    return {
        "kind": kind,
        "name": name,
        "agent": name if kind == "agent" else "",
        **used(span, given, made, attributes.name("gen_ai.tool.call.id")),
    }
