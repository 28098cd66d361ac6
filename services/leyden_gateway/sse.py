"""A finished reply, replayed as the server-sent events of a streamed one.

The replica is never asked to stream: its tool parser reads malformed calls differently while streaming, and what the
agent sees must be what was recorded.
"""

from typing import Any

import msgspec

from leyden_gateway.reply import Reply

_MESSAGE = msgspec.json.Decoder(dict[str, Any])


def events(reply: Reply, model: str, include_usage: bool) -> bytes:
    """Return the whole stream: role, text, tool calls, finish, perhaps usage, and `[DONE]`."""
    message = _MESSAGE.decode(reply.message)
    choices = [_choice(delta) for delta in _deltas(message)]
    choices.append(_choice({}, reply.finish_reason))
    choices[1]["logprobs"] = reply.shown_logprobs
    base: dict[str, Any] = {
        "id": reply.id,
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": model,
    }
    usage = {"usage": None} if include_usage else {}
    chunks = [{**base, "choices": [choice], **usage} for choice in choices]
    if include_usage:
        chunks.append({**base, "choices": [], "usage": reply.usage})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the deltas that add up to `message`."""
    nothing = None if message.get("content") is None else ""
    deltas: list[dict[str, Any]] = [{"role": message.get("role", "assistant"), "content": nothing}]
    for name in ("reasoning", "reasoning_content", "content", "refusal"):
        if message.get(name):
            deltas.append({name: message[name]})
    for index, call in enumerate(message.get("tool_calls") or []):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    return deltas
