"""Anthropic's stream: named events, in which one content block after another opens, grows and closes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Delta, Head
from leyden_gateway.protocols.messages_writing import error_object, stop_of, thinking_block, tool_block, usage_of
from leyden_gateway.protocols.translated import arguments_object, text_of, thought_of
from leyden_gateway.reply import Reply


class BlockEvents:
    """The stream of one message."""

    def __init__(self, ask: Ask, head: Head) -> None:
        self._ask = ask
        self._head = head
        self._begun = False
        self._open: str | None = None
        self._index = -1

    def piece(self, index: int, delta: Delta, logprobs: msgspec.Raw | None) -> bytes:
        """Write a piece: text, thinking if the agent wants it, or whole tool calls."""
        parts = [self._begin()]
        thought, text = thought_of(delta), text_of(delta)
        if thought and self._ask.note:
            parts += [self._enter(thinking_block("")), self._grow({"type": "thinking_delta", "thinking": thought})]
        if text:
            parts += [self._enter({"type": "text", "text": ""}), self._grow({"type": "text_delta", "text": text})]
        # Replies to requests with tools are replayed when they are whole, so no call comes in parts.
        parts += [self._call(call) for call in delta.get("tool_calls") or []]
        return b"".join(parts)

    def finish(self, replies: Sequence[Reply]) -> bytes:
        """Write the end."""
        (reply,) = replies
        stop, sequence = stop_of(reply)
        delta = {"stop_reason": stop, "stop_sequence": sequence}
        end = {"type": "message_delta", "delta": delta, "usage": usage_of(reply)}
        return self._begin() + self._leave() + _event(end) + _event({"type": "message_stop"})

    def fail(self, error: ApiError) -> bytes:
        """Write an `error` event."""
        return _event(error_object(error))

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message: dict[str, Any] = {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._ask.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self._head.prompt_tokens, "output_tokens": 0},
        }
        return _event({"type": "message_start", "message": message})

    def _enter(self, block: dict[str, Any]) -> bytes:
        """Open a block, unless the last one is of this kind and grows on. Each tool call is a block of its own."""
        if self._open == block["type"] != "tool_use":
            return b""
        closed = self._leave()
        self._open = block["type"]
        self._index += 1
        start = _event({"type": "content_block_start", "index": self._index, "content_block": block})
        return closed + start + (_event({"type": "ping"}) if self._index == 0 else b"")

    def _grow(self, delta: dict[str, Any]) -> bytes:
        return _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _leave(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event({"type": "content_block_stop", "index": self._index})

    def _call(self, call: dict[str, Any]) -> bytes:
        arguments = arguments_object(call["function"]["arguments"])
        written = msgspec.json.encode(arguments).decode()
        return self._enter(tool_block(call, {})) + self._grow({"type": "input_json_delta", "partial_json": written})


def _event(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))
