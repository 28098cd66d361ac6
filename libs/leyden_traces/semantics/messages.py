"""Chat messages, from the shapes that instrumentations write to the one of OpenAI's API, within bounds."""

from collections.abc import Iterable
from typing import Any

from leyden_traces.semantics.values import MAX_NAME, as_text, cut, from_json, to_json

MAX_MESSAGES = 256 * 1024
"""Bytes of what one call was shown, or of what it answered."""
CUT = "cut"
"""Role of the last message of a list that was longer: it says what is missing."""
Message = dict[str, Any]

_KEPT = ("content", "name", "tool_call_id", "reasoning_content", "refusal")


def write(messages: Iterable[Message], limit: int = MAX_MESSAGES) -> str:
    """Return the messages as a JSON list of at most about `limit` bytes; empty text if there are none."""
    parts: list[str] = []
    left, missing = limit, 0
    for message in messages:
        text = to_json(message)
        size = len(text.encode())
        if missing or size > left:
            missing += 1
            continue
        parts.append(text)
        left -= size
    if missing:
        parts.append(to_json({"role": CUT, "content": f"{missing} more messages were too long to keep"}))
    return f"[{','.join(parts)}]" if parts else ""


def from_list(value: Any, role: str = "user") -> list[Message]:
    """Return the messages of a JSON list, whose items have `parts` (OpenTelemetry) or are OpenAI's; [] if it is none.

    Args:
        value: JSON text or what it holds.
        role: of items that are mere text.
    """
    value = from_json(value)
    if isinstance(value, dict):
        value = value["messages"] if isinstance(value.get("messages"), list) else [value]
    if not isinstance(value, list):
        return [text(role, value)] if isinstance(value, str) and value else []
    return [message for item in value for message in from_item(item, role)]


def from_item(item: Any, role: str = "user") -> list[Message]:
    """Return the messages that one item of a list stands for."""
    if isinstance(item, list):  # LangChain batches conversations
        return [message for each in item for message in from_item(each, role)]
    if not isinstance(item, dict):
        return [text(role, as_text(item))] if item is not None else []
    if isinstance(item.get("parts"), list):
        return _from_parts(str(item.get("role") or role), item["parts"])
    if isinstance(item.get("message"), dict):  # a choice
        item = {**item, **item["message"]}
    made: Message = {"role": str(item.get("role") or role)}
    made |= {key: item[key] for key in _KEPT if item.get(key) is not None}
    if item.get("id") is not None and made["role"] == "tool":
        made.setdefault("tool_call_id", item["id"])
    calls = item.get("tool_calls")
    if isinstance(calls, list) and calls:
        made["tool_calls"] = [tool_call(call) for call in calls if isinstance(call, dict)]
    return [made] if len(made) > 1 else []


def text(role: str, content: str) -> Message:
    """Return a message of text."""
    return {"role": role, "content": content}


def tool_call(call: dict[str, Any]) -> Message:
    """Return a tool call in OpenAI's shape, from that or a flat one (`id`, `name`, `arguments`)."""
    found = call.get("function")
    function = found if isinstance(found, dict) else call
    return {
        "id": cut(as_text(call.get("id") or call.get("call_id")), MAX_NAME),
        "type": "function",
        "function": {
            "name": cut(as_text(function.get("name")), MAX_NAME),
            "arguments": as_text(function.get("arguments", function.get("args"))),
        },
    }


def asked_tools(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the ids of the tool calls in a reply."""
    return tuple(call["id"] for call in _calls(messages) if call["id"])


def odd_arguments(messages: Iterable[Message]) -> bool:
    """Say whether a reply asks for a tool with arguments that are no JSON object; none at all are one."""
    given = [call["function"]["arguments"] for call in _calls(messages)]
    return any(not isinstance(from_json(arguments), dict) for arguments in given if arguments.strip())


def _calls(messages: Iterable[Message]) -> list[Message]:
    return [call for message in messages for call in message.get("tool_calls", ())]


def _from_parts(role: str, parts: list[Any]) -> list[Message]:
    """Return the messages of OpenTelemetry's `parts`: each tool's answer is a message of its own."""
    content: list[Any] = []
    calls: list[Message] = []
    answers: list[Message] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_call":
            calls.append(tool_call(part))
        elif kind == "tool_call_response":
            answer = as_text(part.get("response", part.get("result")))
            answers.append({"role": "tool", "tool_call_id": as_text(part.get("id")), "content": answer})
        elif kind == "text" or not isinstance(part, dict):
            content.append(as_text(part.get("content", part.get("text")) if isinstance(part, dict) else part))
        else:
            content.append(part)
    if not content and not calls:
        return answers
    made: Message = {"role": role, "content": _joined(content)}
    if calls:
        made["tool_calls"] = calls
    return [made, *answers]


def _joined(content: list[Any]) -> Any:
    if all(isinstance(part, str) for part in content):
        return "\n".join(content)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
