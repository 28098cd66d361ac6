"""OpenTelemetry's conventions for generative AI: those of today, and the older ones that libraries still write."""

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_traces.semantics import older
from leyden_traces.semantics.common import reply_fields
from leyden_traces.semantics.fact import Kind
from leyden_traces.semantics.messages import Message, from_item, from_list
from leyden_traces.semantics.tools import used
from leyden_traces.semantics.values import MAX_NAME, Attributes, as_text, cut

_KINDS: dict[str, Kind] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "completion": "llm",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "retrieval": "retrieval",
    "agent_handoff": "other",
    "embeddings": "other",
    "invoke_workflow": "other",
}
_DETAILS = "gen_ai.client.inference.operation.details"
"""The event that may hold what was said, in place of the span."""


def read(span: Span, attributes: Attributes) -> dict[str, Any] | None:
    """Return what the span says beyond its identity, or None if it is not written in this convention."""
    kind = _kind(attributes)
    if kind is None:
        return None
    fields: dict[str, Any] = {
        "kind": kind,
        "agent": attributes.name("gen_ai.agent.name"),
        "model": attributes.name("gen_ai.request.model", "gen_ai.response.model"),
    }
    if kind == "llm":
        return fields | _llm(span, attributes)
    fields["name"] = _name(span, attributes, kind)
    arguments = attributes.get("gen_ai.tool.call.arguments") or attributes.get("gen_ai.retrieval.query.text")
    result = attributes.get("gen_ai.tool.call.result") or attributes.get("gen_ai.retrieval.documents")
    return fields | used(span, arguments, result, attributes.name("gen_ai.tool.call.id"))


def _kind(attributes: Attributes) -> Kind | None:
    operation = attributes.text("gen_ai.operation.name", "llm.request.type")
    if not operation and (attributes.name("gen_ai.request.model") and attributes.name("gen_ai.system")):
        return "llm"
    return _KINDS.get(operation)


def _name(span: Span, attributes: Attributes, kind: Kind) -> str:
    if kind == "tool":
        said = attributes.name("gen_ai.tool.name")
    elif kind == "retrieval":
        said = attributes.name("gen_ai.data_source.id")
    elif to := attributes.name("gen_ai.handoff.to_agent"):
        said = f"handoff to {to}"
    else:
        said = attributes.name("gen_ai.agent.name", "gen_ai.workflow.name")
    operation = attributes.text("gen_ai.operation.name")
    return said or cut(span.name.removeprefix(operation).strip() or operation, MAX_NAME)


def _llm(span: Span, attributes: Attributes) -> dict[str, Any]:
    messages, reply, reasons = _said(attributes)
    if not messages and not reply:
        messages, reply, reasons = older.from_keys(attributes)
    if not messages and not reply:
        messages, reply, reasons = _from_events(span)
    given = attributes.get("gen_ai.response.finish_reasons")
    reason = given[0] if isinstance(given, list) and given else (reasons[0] if reasons else "")
    return {
        **reply_fields(messages, reply),
        "response_id": attributes.name("gen_ai.response.id"),
        "finish_reason": cut(as_text(reason), MAX_NAME),
        "input_tokens": attributes.count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": attributes.count("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    }


def _said(attributes: Attributes) -> older.Said:
    """Return messages, reply and finish reasons from `gen_ai.input.messages` and `gen_ai.output.messages`."""
    system = attributes.data("gen_ai.system_instructions")
    before: list[Message] = from_item({"role": "system", "parts": system}) if isinstance(system, list) else []
    answers = attributes.data("gen_ai.output.messages")
    reasons = [item.get("finish_reason") for item in answers if isinstance(item, dict)] if _is_list(answers) else []
    reply = from_list(answers, "assistant")
    return before + from_list(attributes.data("gen_ai.input.messages")), reply, [each for each in reasons if each]


def _from_events(span: Span) -> older.Said:
    for event in span.events:
        if event.name == _DETAILS:
            return _said(Attributes(event.attributes))
    return older.from_events(span)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
