"""OpenAI's text completions (`POST /v1/completions`): a prompt as text or as token ids, and no template around it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_gateway.ask import Ask, refused
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import openai
from leyden_gateway.protocols.base import Delta, Events, Head
from leyden_gateway.protocols.fields import Fields, is_given, read_fields, read_object
from leyden_gateway.reply import Reply

_READ: dict[str, msgspec.json.Decoder[Any]] = {
    "model": msgspec.json.Decoder(str),
    "prompt": msgspec.json.Decoder(str | list[Any]),
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(dict[str, Any] | None),
    "n": msgspec.json.Decoder(int | None),
    "best_of": msgspec.json.Decoder(int | None),
    "echo": msgspec.json.Decoder(bool | None),
    "logprobs": msgspec.json.Decoder(int | None),
    "max_tokens": msgspec.json.Decoder(int | None),
    "seed": msgspec.json.Decoder(int | None),
    "temperature": msgspec.json.Decoder(float | None),
    "top_p": msgspec.json.Decoder(float | None),
}
_MOST_LOGPROBS = 20
_TOKEN_ID_END = 2**31


class Completions:
    """The dialect."""

    stream_type = openai.EVENT_STREAM

    def read(self, body: bytes) -> Ask:
        """Read a request."""
        fields = read_object(body)
        found = read_fields(fields, _READ, ("model", "prompt"))
        samples = 1 if found.get("n") is None else found["n"]
        _refuse(fields, found, samples)
        parsed = {name: found[name] for name in ("logprobs", "seed") if found.get(name) is not None}
        wishes = openai.passed_on(fields, _READ)
        return Ask(
            model=found["model"],
            fields={"prompt": _prompt(found["prompt"]), **wishes, **parsed},
            endpoint="completions",
            stream=bool(found.get("stream")),
            samples=samples,
            logprobs=found.get("logprobs") is not None,
            temperature=found.get("temperature"),
            top_p=found.get("top_p"),
            max_tokens=found.get("max_tokens"),
            note=bool((found.get("stream_options") or {}).get("include_usage")),
        )

    def answer(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Write a text completion."""
        choices = [
            _choice(index, reply.read_message().get("content") or "", reply.shown_logprobs, reply.finish_reason)
            for index, reply in enumerate(replies)
        ]
        first = replies[0]
        return msgspec.json.encode(
            {**_base(ask, first.id, first.created), "choices": choices, "usage": openai.usage(replies)}
        )

    def events(self, ask: Ask, head: Head) -> Events:
        """Begin a stream."""
        return _Chunks(ask, head)

    def refuse(self, error: ApiError) -> bytes:
        """Write an error."""
        return openai.error_body(error)


class _Chunks:
    def __init__(self, ask: Ask, head: Head) -> None:
        self._usage = {"usage": None} if ask.note else {}
        self._base = _base(ask, head.id, head.created)

    def piece(self, index: int, delta: Delta, logprobs: msgspec.Raw | None) -> bytes:
        text = delta.get("content") or ""
        return self._chunk(_choice(index, text, logprobs, None)) if text or logprobs is not None else b""

    def finish(self, replies: Sequence[Reply]) -> bytes:
        ends = [self._chunk(_choice(index, "", None, reply.finish_reason)) for index, reply in enumerate(replies)]
        if self._usage:
            ends.append(openai.data({**self._base, "choices": [], "usage": openai.usage(replies)}))
        return b"".join(ends) + openai.DONE

    def fail(self, error: ApiError) -> bytes:
        return openai.data({"error": openai.error_object(error)})

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return openai.data({**self._base, "choices": [choice], **self._usage})


def _base(ask: Ask, id: str, created: int) -> dict[str, Any]:
    return {"id": id, "object": "text_completion", "created": created, "model": ask.model}


def _choice(index: int, text: str, logprobs: msgspec.Raw | None, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _prompt(given: str | list[Any]) -> str | list[int]:
    """Return the one prompt, as text or token ids. Raises ApiError (400)."""
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str | list):
        given = given[0]  # Many clients wrap a single prompt.
    if isinstance(given, str):
        return given
    if any(isinstance(one, str | list) for one in given):
        raise refused("`prompt` holds several prompts: send one request for each")
    if not given or not all(type(one) is int and 0 <= one < _TOKEN_ID_END for one in given):
        raise refused("`prompt` must be a text or a list of token ids that is not empty")
    return given


def _refuse(fields: Fields, found: dict[str, Any], samples: int) -> None:
    """Refuse what would change the text and cannot be honoured or recorded. Raises ApiError (400)."""
    if found.get("echo"):
        raise refused("`echo` cannot be honoured: a reply holds the tokens of the response alone")
    if found.get("best_of") not in (None, samples):
        raise refused("`best_of` must equal `n`: every sample is returned")
    if not 0 <= (found.get("logprobs") or 0) <= _MOST_LOGPROBS:
        raise refused(f"`logprobs` must be from 0 to {_MOST_LOGPROBS}")
    for name in ("suffix", "prompt_embeds"):
        if is_given(fields, name):
            raise refused(f"`{name}` is not supported: leave it out")
