"""A reply that the replica still writes: its pieces go to the agent, its tokens are gathered for the record."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from leyden_gateway.reply import NOTHING, Logprobs, Reply, check_whole, text_message, unusable
from leyden_traces import CUT, MalformedSpan, pack_ids, pack_logprobs

_DONE = b"[DONE]"


class _Choice(msgspec.Struct):
    delta: dict[str, Any] | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_token_ids: list[int] | None = None


class _Chunk(msgspec.Struct):
    id: str = ""
    created: int = 0
    choices: list[_Choice] = []
    usage: msgspec.Raw = NOTHING
    prompt_token_ids: list[int] | None = None
    error: msgspec.Raw = NOTHING


class _FullChoice(msgspec.Struct):
    logprobs: msgspec.Raw = NOTHING


class _FullChunk(msgspec.Struct):
    choices: list[_FullChoice]


_CHUNK = msgspec.json.Decoder(_Chunk)
_FULL = msgspec.json.Decoder(_FullChunk)


@dataclass(frozen=True, slots=True)
class Piece:
    """What goes to the agent."""

    delta: dict[str, Any]
    logprobs: msgspec.Raw | None


class StreamBroken(Exception):
    """The replica's stream ended before the reply did."""


class Live:
    """Reads a replica's server-sent events. `pieces` yields them; afterwards `reply` is the whole."""

    def __init__(self, lines: AsyncIterator[bytes], show_logprobs: bool) -> None:
        self._lines = lines
        self._show_logprobs = show_logprobs
        self.id, self.created = "", 0
        self.prompt_ids = b""
        self._response_ids = bytearray()
        self._logprobs = bytearray()
        self._text: list[str] = []
        self._usage: msgspec.Raw | None = None
        self._finish_reason: str | None = None
        self._stop_reason: int | str | None = None

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the reply piece by piece. Nothing comes before the first token: until then another replica may try.

        Raises:
            StreamBroken: the replica went away.
            ApiError: 502, it sent what cannot be recorded.
        """
        held: list[Piece] = []
        async for line in self._lines:
            data = line.strip()
            if not data.startswith(b"data:"):
                continue
            data = data[5:].strip()
            if data == _DONE:
                return
            held += self._take(data)
            if self._response_ids:
                for piece in held:
                    yield piece
                held = []
        raise StreamBroken("the replica's stream ended early")

    def reply(self) -> Reply:
        """Return the whole reply, checked. Raises ApiError (502)."""
        reply = self._so_far(self._finish_reason or "")
        check_whole(reply)
        return reply

    def cut(self) -> Reply:
        """Return what there is of a reply that the agent did not hear out."""
        return self._so_far(CUT)

    def _so_far(self, finish_reason: str) -> Reply:
        count = len(self._response_ids) // 4
        usage = self._usage or msgspec.Raw(
            msgspec.json.encode({"prompt_tokens": len(self.prompt_ids) // 4, "completion_tokens": count})
        )
        return Reply(
            id=self.id,
            created=self.created,
            message=text_message("".join(self._text)),
            finish_reason=finish_reason,
            usage=usage,
            prompt_ids=self.prompt_ids,
            response_ids=bytes(self._response_ids),
            logprobs=bytes(self._logprobs),
            stop_reason=self._stop_reason,
        )

    def _take(self, data: bytes) -> list[Piece]:
        try:
            chunk = _CHUNK.decode(data)
        except ValueError as error:
            raise unusable(str(error)) from error
        if chunk.error != NOTHING:
            raise StreamBroken(bytes(chunk.error).decode(errors="replace")[:500])
        self.id, self.created = self.id or chunk.id, self.created or chunk.created
        self._usage = self._usage if chunk.usage == NOTHING else chunk.usage
        if not chunk.choices:
            return []
        if len(chunk.choices) != 1:
            raise unusable(f"{len(chunk.choices)} choices in one event")
        choice = chunk.choices[0]
        self._record(choice, chunk.prompt_token_ids or choice.prompt_token_ids)
        delta = choice.delta if choice.delta is not None else {"content": choice.text or ""}
        self._text.append(delta.get("content") or "")
        shown = _FULL.decode(data).choices[0].logprobs if self._show_logprobs else None
        return [Piece(delta, shown)] if any(delta.values()) or choice.token_ids else []

    def _record(self, choice: _Choice, prompt_ids: list[int] | None) -> None:
        try:
            if prompt_ids:
                self.prompt_ids = pack_ids(prompt_ids)
            if choice.token_ids:
                self._response_ids += pack_ids(choice.token_ids)
                self._logprobs += pack_logprobs(choice.logprobs.values if choice.logprobs else [])
        except (ValueError, MalformedSpan) as error:
            raise unusable(str(error)) from error
        self._finish_reason = choice.finish_reason or self._finish_reason
        self._stop_reason = self._stop_reason if choice.stop_reason is None else choice.stop_reason
