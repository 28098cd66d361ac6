"""How OpenTelemetry's instrumentations wrote messages before: numbered keys, and an event a message."""

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_traces.semantics.flat import numbered
from leyden_traces.semantics.messages import Message, from_item, from_list
from leyden_traces.semantics.values import Attributes, from_json

Said = tuple[list[Message], list[Message], list[Any]]
"""What the model was shown, what it answered, and why it stopped."""

_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def from_keys(attributes: Attributes) -> Said:
    """Read `gen_ai.prompt.0.content` and the like, or `gen_ai.prompt` as a whole."""
    answers = numbered(attributes, "gen_ai.completion")
    messages = [message for item in numbered(attributes, "gen_ai.prompt") for message in from_item(item)]
    reply = [message for item in answers for message in from_item(item, "assistant")]
    reasons = [item["finish_reason"] for item in answers if item.get("finish_reason")]
    return (
        messages or from_list(attributes.get("gen_ai.prompt")),
        reply or from_list(attributes.get("gen_ai.completion"), "assistant"),
        reasons,
    )


def from_events(span: Span) -> Said:
    """Read `gen_ai.user.message`, `gen_ai.choice` and their like, whose fields are attributes or one JSON value."""
    messages: list[Message] = []
    reply: list[Message] = []
    reasons: list[Any] = []
    for event in span.events:
        attributes = Attributes(event.attributes)
        if event.name in _ROLES:
            messages += from_item({"role": _ROLES[event.name], **_fields(attributes)})
        elif event.name == "gen_ai.choice":
            fields = _fields(attributes)
            reply += from_item(fields, "assistant")
            reasons += [fields["finish_reason"]] if fields.get("finish_reason") else []
        elif event.name == "gen_ai.content.prompt":
            messages += from_list(attributes.get("gen_ai.prompt"))
        elif event.name == "gen_ai.content.completion":
            reply += from_list(attributes.get("gen_ai.completion"), "assistant")
    return messages, reply, reasons


def _fields(attributes: Attributes) -> dict[str, Any]:
    whole = attributes.data("gen_ai.event.content")
    if isinstance(whole, dict):
        return whole
    # Content is text, whatever it looks like; a message or its tool calls are JSON.
    fields = {key: attributes.get(key) for key in attributes}
    return {key: value if key == "content" else from_json(value) for key, value in fields.items()}
