"""OpenAI's chat completions (`POST /v1/chat/completions`): what replicas speak, so little is translated."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import openai
from leyden_gateway.protocols.base import Delta, Events, Head
from leyden_gateway.protocols.fields import read_fields, read_object, smallest
from leyden_gateway.reply import Reply

_READ: dict[str, msgspec.json.Decoder[Any]] = {
    "model": msgspec.json.Decoder(str),
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(dict[str, Any] | None),
    "n": msgspec.json.Decoder(int | None),
    "max_tokens": msgspec.json.Decoder(int | None),
    "max_completion_tokens": msgspec.json.Decoder(int | None),
    "logprobs": msgspec.json.Decoder(bool | None),
    "seed": msgspec.json.Decoder(int | None),
    "temperature": msgspec.json.Decoder(float | None),
    "top_p": msgspec.json.Decoder(float | None),
}


class Chat:
    """The dialect."""

    stream_type = openai.EVENT_STREAM

    def read(self, body: bytes) -> Ask:
        """Read a request."""
        fields = read_object(body)
        found = read_fields(fields, _READ, ("model", "messages"))
        samples, seed = found.get("n"), found.get("seed")
        wishes = openai.passed_on(fields, _READ)
        return Ask(
            model=found["model"],
            fields=wishes if seed is None else {**wishes, "seed": seed},
            stream=bool(found.get("stream")),
            samples=1 if samples is None else samples,
            logprobs=bool(found.get("logprobs")),
            temperature=found.get("temperature"),
            top_p=found.get("top_p"),
            max_tokens=smallest(found.get("max_tokens"), found.get("max_completion_tokens")),
            note=bool((found.get("stream_options") or {}).get("include_usage")),
        )

    def answer(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Write a chat completion."""
        choices = [
            {
                "index": index,
                "message": reply.message,
                "logprobs": reply.shown_logprobs,
                "finish_reason": reply.finish_reason,
            }
            for index, reply in enumerate(replies)
        ]
        body = {
            "id": replies[0].id,
            "object": "chat.completion",
            "created": replies[0].created,
            "model": ask.model,
            "choices": choices,
            "usage": openai.usage(replies),
        }
        return msgspec.json.encode(body)

    def events(self, ask: Ask, head: Head) -> Events:
        """Begin a stream."""
        return _Chunks(ask, head)

    def refuse(self, error: ApiError) -> bytes:
        """Write an error."""
        return openai.error_body(error)


class _Chunks:
    def __init__(self, ask: Ask, head: Head) -> None:
        self._usage = {"usage": None} if ask.note else {}
        self._base = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": ask.model}

    def piece(self, index: int, delta: Delta, logprobs: msgspec.Raw | None) -> bytes:
        return self._chunk(index, delta, logprobs, None)

    def finish(self, replies: Sequence[Reply]) -> bytes:
        ends = [self._chunk(index, {}, None, reply.finish_reason) for index, reply in enumerate(replies)]
        if self._usage:
            ends.append(openai.data({**self._base, "choices": [], "usage": openai.usage(replies)}))
        return b"".join(ends) + openai.DONE

    def fail(self, error: ApiError) -> bytes:
        return openai.data({"error": openai.error_object(error)})

    def _chunk(self, index: int, delta: Delta, logprobs: msgspec.Raw | None, finish: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return openai.data({**self._base, "choices": [choice], **self._usage})
