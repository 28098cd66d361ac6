"""OpenAI's Responses API (`POST /v1/responses`). Nothing is stored: every request holds its whole conversation."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import openai, responses_read
from leyden_gateway.protocols.base import Delta, Events, Head
from leyden_gateway.protocols.responses_output import Event, Output
from leyden_gateway.reply import Reply

_ERROR_CODES = {429: "rate_limit_exceeded"}


class Responses:
    """The dialect."""

    stream_type = openai.EVENT_STREAM

    def read(self, body: bytes) -> Ask:
        """Read a request."""
        return responses_read.read(body)

    def answer(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Write a response."""
        (reply,) = replies
        output = Output(reply.id)
        logprobs = reply.shown_logprobs
        for delta in reply.deltas():
            output.take(delta, logprobs)
            logprobs = None
        output.close(reply.finish_reason == "length")
        return msgspec.json.encode(_finished(ask, reply.id, reply.created, output, reply))

    def events(self, ask: Ask, head: Head) -> Events:
        """Begin a stream."""
        return _Stream(ask, head)

    def refuse(self, error: ApiError) -> bytes:
        """Write an error."""
        return openai.error_body(error)


class _Stream:
    """Numbers the events and puts the response around them."""

    def __init__(self, ask: Ask, head: Head) -> None:
        self._ask = ask
        self._head = head
        self._output = Output(head.id)
        self._sent = 0

    def piece(self, index: int, delta: Delta, logprobs: msgspec.Raw | None) -> bytes:
        return self._begin() + self._send(self._output.take(delta, logprobs))

    def finish(self, replies: Sequence[Reply]) -> bytes:
        (reply,) = replies
        begun = self._begin()
        closed = self._send(self._output.close(reply.finish_reason == "length"))
        response = _finished(self._ask, self._head.id, self._head.created, self._output, reply)
        return begun + closed + self._send([{"type": f"response.{response['status']}", "response": response}])

    def fail(self, error: ApiError) -> bytes:
        """Say it twice, as OpenAI does: the first is what clients raise, the second ends the response."""
        told = openai.error_object(error)
        code = _ERROR_CODES.get(error.status, "server_error")
        response = {
            **_response(self._ask, self._head.id, self._head.created, "failed"),
            "error": {"code": code, "message": error.message},
            "output": self._output.items,
        }
        said = {"type": "error", "code": told["code"], "message": told["message"], "param": None, "error": told}
        return self._begin() + self._send([said, {"type": "response.failed", "response": response}])

    def _begin(self) -> bytes:
        if self._sent:
            return b""
        response = _response(self._ask, self._head.id, self._head.created, "in_progress")
        kinds = ("response.created", "response.in_progress")
        return self._send([{"type": kind, "response": response} for kind in kinds])

    def _send(self, events: list[Event]) -> bytes:
        sent = []
        for event in events:
            body = msgspec.json.encode({**event, "sequence_number": self._sent})
            sent.append(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), body))
            self._sent += 1
        return b"".join(sent)


def _response(ask: Ask, id: str, created: int, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": ask.model,
        "output": [],
        "usage": None,
        **ask.note,
    }


def _finished(ask: Ask, id: str, created: int, output: Output, reply: Reply) -> dict[str, Any]:
    cut = reply.finish_reason == "length"
    return {
        **_response(ask, id, created, "incomplete" if cut else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output.items,
        "usage": _usage(reply),
    }


def _usage(reply: Reply) -> dict[str, Any]:
    said = openai.read_usage(reply)
    cached, thought = said.prompt_tokens_details, said.completion_tokens_details
    return {
        "input_tokens": said.prompt_tokens,
        "input_tokens_details": {"cached_tokens": (cached and cached.cached_tokens) or 0, "cache_write_tokens": 0},
        "output_tokens": said.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": (thought and thought.reasoning_tokens) or 0},
        "total_tokens": said.prompt_tokens + said.completion_tokens,
    }
