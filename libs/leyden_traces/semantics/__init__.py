"""What spans of agents mean: OpenTelemetry's GenAI conventions, OpenInference and OpenLLMetry, read as `Fact`s."""

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_traces.semantics import genai, openinference, traceloop
from leyden_traces.semantics.common import identity, process_of
from leyden_traces.semantics.fact import Fact, Kind
from leyden_traces.semantics.values import MAX_NAME, Attributes, cut

__all__ = ["Fact", "Kind", "process_of", "read_span"]


def read_span(span: Span, process: str) -> Fact:
    """Return what an agent's span says; a span of no known convention is `plain`. Never raises.

    Args:
        span: as it was sent.
        process: `process_of` its resource.
    """
    attributes = Attributes(span.attributes)
    fields: dict[str, Any] = {}
    # Some write two conventions on one span: the first that knows its kind leads, the others fill the gaps.
    for convention in (openinference, genai, traceloop):
        said = convention.read(span, attributes)
        if said and said["kind"] != "plain" and said["kind"] == fields.get("kind", said["kind"]):
            fields |= {name: value for name, value in said.items() if not fields.get(name)}
    return Fact(**{**identity(span, process), **(fields or {"name": cut(span.name, MAX_NAME)})})
