"""The items of a Responses conversation as chat messages, so that the prompt is the one vLLM itself makes of them."""

from typing import Any

from leyden_gateway.ask import refused

Item = dict[str, Any]
Message = dict[str, Any]

_ROLES = ("user", "system", "developer", "assistant")
_TEXT = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal", "reasoning_text": "text"}
"""Kind of content part -> where its text is."""


def messages(instructions: str | None, given: str | list[Any]) -> list[Message]:
    """Return the chat messages of a conversation. Raises ApiError (400)."""
    found: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    if not given:
        raise refused("`input` must not be empty")
    turns: list[Message] = []
    for place, item in enumerate(given):
        if not isinstance(item, dict):
            raise refused(f"`input[{place}]` must be an object")
        _take(turns, item, f"input[{place}]")
    return found + turns


def continues(given: str | list[Any]) -> bool:
    """Whether the last item is an unfinished message of the assistant: then the reply goes on with it."""
    last = given[-1] if isinstance(given, list) else {}
    return last.get("role") == "assistant" and last.get("status") in ("in_progress", "incomplete")


def _take(turns: list[Message], item: Item, where: str) -> None:
    """Add an item: what the assistant thought, said and called becomes one message as far as it can."""
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") == "assistant":
        _assistant(turns, "content", "".join(_texts(item.get("content"), where)))
    elif kind == "message":
        if item.get("role") not in _ROLES:
            raise refused(f"`{where}.role` must be one of {', '.join(_ROLES)}")
        turns.append({"role": item["role"], "content": _content(item.get("content"), where)})
    elif kind == "function_call":
        _called(turns, item, where)
    elif kind == "function_call_output":
        output = _content(item.get("output"), where)
        turns.append({"role": "tool", "content": output, "tool_call_id": _string(item, "call_id", where)})
    elif kind == "reasoning":
        # What is encrypted is another model's; what is in clear belongs to the prompt.
        thought = _texts(item.get("content") or [], where)
        if thought:
            _assistant(turns, "reasoning", "".join(thought))
    elif kind == "item_reference":
        raise refused(f"`{where}` refers to a stored item, and nothing is stored: send the whole item")
    else:
        raise refused(f"`{where}`: items of type {kind!r} are not supported")


def _called(turns: list[Message], item: Item, where: str) -> None:
    call = {
        "id": _string(item, "call_id", where),
        "type": "function",
        "function": {"name": _string(item, "name", where), "arguments": _string(item, "arguments", where)},
    }
    if turns and turns[-1]["role"] == "assistant":
        turns[-1].setdefault("tool_calls", []).append(call)
    else:
        turns.append({"role": "assistant", "tool_calls": [call]})


def _assistant(turns: list[Message], name: str, text: str) -> None:
    """Set a part of the assistant's last message, or begin one: as vLLM joins items."""
    if turns and turns[-1]["role"] == "assistant" and turns[-1].get(name) is None:
        turns[-1][name] = text
    else:
        turns.append({"role": "assistant", name: text})


def _texts(content: Any, where: str) -> list[str]:
    """Return the texts of content that is text alone."""
    if isinstance(content, str):
        return [content]
    parts = _parts(content, where)
    if any(part["type"] != "text" for part in parts):
        raise refused(f"`{where}.content` must be text")
    return [part["text"] for part in parts]


def _content(content: Any, where: str) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else _parts(content, where)


def _parts(content: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        raise refused(f"`{where}` needs a text or a list of content parts")
    return [_part(part, where) for part in content]


def _part(part: Any, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in _TEXT:
        return {"type": "text", "text": _string(part, _TEXT[kind], where)}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"], "detail": part.get("detail") or "auto"}}
    raise refused(f"`{where}`: content parts of type {kind!r} are not supported: send text, or an image by its URL")


def _string(item: Item, name: str, where: str) -> str:
    if not isinstance(item.get(name), str):
        raise refused(f"`{where}.{name}` must be a string")
    return str(item[name])
