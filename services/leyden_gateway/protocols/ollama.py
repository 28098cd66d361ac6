"""Ollama's chat and generate (`POST /api/chat`, `POST /api/generate`): streams are lines of JSON, and the default."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import ollama_reading
from leyden_gateway.protocols.base import Delta, Events, Head
from leyden_gateway.protocols.ollama_writing import Shape, chat_part, end_of, generate_part, shown_logprobs, stamp
from leyden_gateway.reply import Reply


class _Ollama:
    """What both have in common."""

    stream_type = "application/x-ndjson"

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def answer(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Write one object that holds everything."""
        (reply,) = replies
        part = self._shape(reply.read_message(), ask.note.think)
        logprobs = shown_logprobs(reply.shown_logprobs)
        return msgspec.json.encode(
            {"model": ask.model, "created_at": stamp(reply.created), **part, **end_of(ask, reply), **logprobs}
        )

    def events(self, ask: Ask, head: Head) -> Events:
        """Begin a stream."""
        return _Lines(ask, head, self._shape)

    def refuse(self, error: ApiError) -> bytes:
        """Write `{"error": "..."}`."""
        return msgspec.json.encode({"error": error.message})


class OllamaChat(_Ollama):
    """The dialect of `/api/chat`."""

    def __init__(self) -> None:
        super().__init__(chat_part)

    def read(self, body: bytes) -> Ask:
        """Read a request."""
        return ollama_reading.read_chat(body)


class OllamaGenerate(_Ollama):
    """The dialect of `/api/generate`."""

    def __init__(self) -> None:
        super().__init__(generate_part)

    def read(self, body: bytes) -> Ask:
        """Read a request."""
        return ollama_reading.read_generate(body)


class _Lines:
    """The stream of one reply."""

    def __init__(self, ask: Ask, head: Head, shape: Shape) -> None:
        self._ask = ask
        self._shape = shape
        self._base = {"model": ask.model, "created_at": stamp(head.created)}

    def piece(self, index: int, delta: Delta, logprobs: msgspec.Raw | None) -> bytes:
        part, more = self._shape(delta, self._ask.note.think), shown_logprobs(logprobs)
        if not more and part == self._shape({}, False):
            return b""
        return _line({**self._base, **part, "done": False, **more})

    def finish(self, replies: Sequence[Reply]) -> bytes:
        (reply,) = replies
        return _line({**self._base, **self._shape({}, False), **end_of(self._ask, reply)})

    def fail(self, error: ApiError) -> bytes:
        return _line({"error": error.message})


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
