"""OpenInference, the convention of Arize's instrumentations."""

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_traces.semantics.common import reply_fields
from leyden_traces.semantics.fact import Kind
from leyden_traces.semantics.flat import numbered, within
from leyden_traces.semantics.messages import Message, from_item, from_list
from leyden_traces.semantics.tools import used
from leyden_traces.semantics.values import MAX_NAME, Attributes, as_text, cut, from_json

_KINDS: dict[str, Kind] = {
    "LLM": "llm",
    "TOOL": "tool",
    "AGENT": "agent",
    "RETRIEVER": "retrieval",
    "RERANKER": "retrieval",
    "EMBEDDING": "other",
    "GUARDRAIL": "other",
    "EVALUATOR": "other",
    "DECISION": "other",
    "HUMAN": "other",
}
_HIDDEN = "__REDACTED__"
_IDS = (
    ("id",),
    ("llm_output", "id"),
    ("generations", "0", "0", "message", "kwargs", "response_metadata", "id"),
    ("generations", "0", "0", "message", "kwargs", "id"),
)
"""Where a reply's id stands in `output.value`: OpenAI's own reply, LangChain's."""


def read(span: Span, attributes: Attributes) -> dict[str, Any] | None:
    """Return what the span says beyond its identity, or None if it is not written in this convention."""
    said = attributes.text("openinference.span.kind")
    if not said:
        return None
    kind = _KINDS.get(said.upper(), "plain")
    graph = cut(as_text(within(attributes.data("metadata"), "lc_agent_name")), MAX_NAME)
    if graph and graph == span.name:  # LangChain calls the run of an agent a chain
        kind = "agent"
    fields: dict[str, Any] = {"kind": kind, "model": attributes.name("llm.model_name", "llm.request.model_name")}
    if kind == "llm":
        return fields | {"agent": attributes.name("agent.name") or graph} | _llm(attributes)
    if kind == "plain":
        return fields
    agent = attributes.name("agent.name", "graph.node.name", "graph.node.id") or graph
    name = attributes.name("tool.name") if kind == "tool" else agent if kind == "agent" else ""
    fields |= {"name": name or cut(span.name, MAX_NAME), "agent": agent if kind == "agent" else ""}
    given, made = _shown(attributes.get("input.value")), _shown(attributes.get("output.value"))
    return fields | used(span, given, made, attributes.name("tool_call.id", "tool.id"))


def _shown(value: Any) -> Any:
    return None if value == _HIDDEN else value


def _llm(attributes: Attributes) -> dict[str, Any]:
    messages = _messages(attributes, "llm.input_messages", "user")
    reply = _messages(attributes, "llm.output_messages", "assistant")
    if not messages:
        messages = _texts(attributes, "llm.prompts", "prompt", "user")
    if not reply:
        reply = _texts(attributes, "llm.choices", "completion", "assistant")
    if not messages and not reply:
        messages = from_list(_shown(attributes.get("input.value")))
        reply = from_list(_shown(attributes.get("output.value")), "assistant")
    answer = attributes.data("output.value")
    ids = (within(answer, *path) for path in _IDS)
    return {
        **reply_fields(messages, reply),
        "response_id": next((cut(found, MAX_NAME) for found in ids if isinstance(found, str)), ""),
        "finish_reason": cut(as_text(attributes.get("llm.finish_reason")), MAX_NAME),
        "input_tokens": attributes.count("llm.token_count.prompt"),
        "output_tokens": attributes.count("llm.token_count.completion"),
    }


def _messages(attributes: Attributes, key: str, role: str) -> list[Message]:
    found: list[Message] = []
    for item in numbered(attributes, key):
        found += _message(item.get("message"), role)
        results = item.get("function")  # AutoGen's answers of tools
        found += [message for each in results for message in _result(each)] if isinstance(results, list) else []
    return found


def _result(written: Any) -> list[Message]:
    result = from_json(written)
    if not isinstance(result, dict):
        return []
    return [{"role": "tool", "tool_call_id": as_text(result.get("call_id")), "content": as_text(result.get("content"))}]


def _message(found: Any, role: str) -> list[Message]:
    if not isinstance(found, dict):
        return []
    made = {**found, "role": found.get("role") or role}
    contents = found.get("contents")
    if "content" not in found and isinstance(contents, list):
        made["content"] = _content([within(part, "message_content") for part in contents])
    calls = found.get("tool_calls")
    if isinstance(calls, list):
        made["tool_calls"] = [within(call, "tool_call") for call in calls]
    if made.get("content") == _HIDDEN:
        del made["content"]
    return from_item(made, role)


def _content(parts: list[Any]) -> Any:
    texts = [within(part, "text") for part in parts if within(part, "type") == "text"]
    return "\n".join(map(as_text, texts)) if len(texts) == len(parts) else [part for part in parts if part]


def _texts(attributes: Attributes, key: str, inner: str, role: str) -> list[Message]:
    found = (within(item, inner, "text") for item in numbered(attributes, key))
    return [{"role": role, "content": text} for text in found if isinstance(text, str)]
