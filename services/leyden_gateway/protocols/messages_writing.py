"""Writes Anthropic's messages and errors."""

from typing import Any

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import translated
from leyden_gateway.reply import Reply

_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def message(ask: Ask, reply: Reply) -> dict[str, Any]:
    """Return a whole message."""
    stop, sequence = stop_of(reply)
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": _blocks(reply.read_message(), ask.note),
        "stop_reason": stop,
        "stop_sequence": sequence,
        "usage": usage_of(reply),
    }


def usage_of(reply: Reply) -> dict[str, int]:
    """Return the tokens of the prompt and the reply."""
    usage = translated.usage_of(reply)
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


def stop_of(reply: Reply) -> tuple[str, str | None]:
    """Return why the reply ended, and the stop sequence that ended it, if one did."""
    if reply.finish_reason == "length":
        return "max_tokens", None
    if reply.finish_reason == "content_filter":
        return "refusal", None
    # A call that the agent forced ends with `stop`, too.
    if reply.finish_reason == "tool_calls" or reply.read_message().get("tool_calls"):
        return "tool_use", None
    return ("stop_sequence", reply.stop_reason) if isinstance(reply.stop_reason, str) else ("end_turn", None)


def thinking_block(text: str) -> dict[str, Any]:
    """Return a block of thinking. Nobody checks its signature: thinking that comes back is not read."""
    return {"type": "thinking", "thinking": text, "signature": ""}


def tool_block(call: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a block for a tool call, as chat completions have it."""
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments}


def error_object(error: ApiError) -> dict[str, Any]:
    """Return `{"type": "error", "error": {"type", "message"}}`."""
    kind = _ERRORS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def _blocks(said: dict[str, Any], show_thinking: bool) -> list[dict[str, Any]]:
    thought, text = translated.thought_of(said), translated.text_of(said)
    blocks = [thinking_block(thought)] if thought and show_thinking else []
    if text:
        blocks.append({"type": "text", "text": text})
    calls = said.get("tool_calls") or []
    return blocks + [tool_block(call, translated.arguments_object(call["function"]["arguments"])) for call in calls]
