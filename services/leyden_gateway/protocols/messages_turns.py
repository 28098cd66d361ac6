"""A conversation in Anthropic's content blocks, as chat messages."""

from typing import Any

import msgspec

from leyden_gateway.ask import refused

_Object = dict[str, Any]
_THOUGHT = ("thinking", "redacted_thinking")
"""Not shown to the model again: chat templates leave out earlier thinking too."""

_BILLING = "x-anthropic-billing-header"
"""Claude Code begins its system prompt with this line for Anthropic, different in each request."""


def chat_messages(system: str | list[_Object] | None, turns: list[_Object]) -> list[_Object]:
    """Return the system prompt and the turns as chat messages. Raises ApiError (400)."""
    messages = _system(system, "system")
    for index, turn in enumerate(turns):
        messages += _turn(turn, f"messages[{index}]")
    if not turns:
        raise refused("`messages` must not be empty")
    return messages


def _system(content: Any, place: str) -> list[_Object]:
    """Return a system prompt as one message, or none: vLLM joins its blocks in the same way."""
    text = "".join(text for text in _texts(content, place) if not text.startswith(_BILLING))
    return [{"role": "system", "content": text}] if text else []


def _turn(turn: _Object, place: str) -> list[_Object]:
    role, content = turn.get("role"), turn.get("content")
    if role not in ("user", "assistant", "system"):
        raise refused(f"`{place}.role` must be `user` or `assistant`")
    if role == "system":
        return _system(content, place)
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise refused(f"`{place}.content` must be a string or a list of blocks")
    return _assistant(content, place) if role == "assistant" else _user(content, place)


def _assistant(blocks: list[_Object], place: str) -> list[_Object]:
    calls = [_call(block, place) for block in blocks if block.get("type") == "tool_use"]
    rest = [block for block in blocks if block.get("type") not in ("tool_use", *_THOUGHT)]
    texts = _texts(rest, place)
    message: _Object = {"role": "assistant", "content": _text(texts) if texts else None if calls else ""}
    return [{**message, "tool_calls": calls} if calls else message]


def _user(blocks: list[_Object], place: str) -> list[_Object]:
    """A user's turn holds results of tools and text; each result is a message of its own."""
    messages: list[_Object] = []
    texts: list[str] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            texts += _texts([block], place)
            continue
        if texts:
            messages.append({"role": "user", "content": _text(texts)})
            texts = []
        messages.append(_result(block, place))
    return [*messages, {"role": "user", "content": _text(texts)}] if texts or not messages else messages


def _call(block: _Object, place: str) -> _Object:
    name, arguments = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise refused(f"`{place}`: a `tool_use` must have a `name` and an `input`, which is an object")
    function = {"name": name, "arguments": msgspec.json.encode(arguments).decode()}
    return {"id": str(block.get("id")), "type": "function", "function": function}


def _result(block: _Object, place: str) -> _Object:
    text = "\n".join(_texts(block.get("content"), f"{place}: tool_result"))
    # Chat messages have no mark for it, and the model must learn that the tool failed.
    content = f"Error: {text}" if block.get("is_error") else text
    return {"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": content}


def _texts(content: str | list[_Object] | None, place: str) -> list[str]:
    if content is None or isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list):
        raise refused(f"`{place}` must be a string or a list of blocks")
    return [_block_text(block, place) for block in content]


def _block_text(block: Any, place: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind != "text" or not isinstance(block.get("text"), str):
        raise refused(f"`{place}`: a block of type `{kind}` cannot be shown to this model; it reads text only")
    return block["text"]


def _text(texts: list[str]) -> str | list[_Object]:
    """One text stays a string; several stay parts, which the replica joins as it joins any client's."""
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts] if texts else ""
