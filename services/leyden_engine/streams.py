"""Streamed replies: server-sent events in vLLM's shape, written while the model thread goes on.

With tools the whole reply is awaited first: what is a tool call shows only at its end.
"""

import json
import time
from typing import Any

from aiohttp import web

from leyden_engine.errors import EngineError
from leyden_engine.job import Job
from leyden_engine.protocol import ChatRequest, CompletionRequest
from leyden_engine.replies import chat_logprobs, chat_reply, completion_logprobs, shown_text
from leyden_engine.text import Text

_UNFINISHED = "\ufffd"
"""What a decoder shows for the first bytes of a character whose last are still to come."""


class ReplyStream:
    """Sends one reply. `progress` may be called at any time, `finish` once the job has ended."""

    def __init__(
        self, request: web.Request, body: ChatRequest | CompletionRequest, response_id: str, text: Text
    ) -> None:
        self._request = request
        self._body = body
        self._text = text
        self._chat = isinstance(body, ChatRequest)
        self._base: dict[str, Any] = {
            "id": response_id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": int(time.time()),
            "model": body.model,
        }
        self._response: web.StreamResponse | None = None
        self._sent_tokens = 0
        self._sent_characters = 0
        # A stop string may begin in text that is there already.
        self._held = max((len(stop) for stop in body.stops), default=1) - 1
        self._whole = isinstance(body, ChatRequest) and bool(body.tools) and body.tool_choice != "none"

    async def progress(self, job: Job) -> None:
        """Send what is new. Raises ConnectionError if the client has left."""
        if not self._whole:
            # The model thread adds a token to each of these in turn.
            ready = len(job.tops if job.sampling.top_logprobs else job.logprobs)
            await self._send_new(job, ready, ended=False)

    async def finish(self, job: Job) -> web.StreamResponse:
        """Send the rest, and the end."""
        if self._whole:
            await self._send_tools(job)
        else:
            await self._send_new(job, len(job.tokens), ended=True)
            await self._send(self._choice({}, job.finish_reason, stop_reason=job.stop_reason))
        if (self._body.stream_options or {}).get("include_usage"):
            prompt, completion = len(job.prompt), len(job.tokens)
            usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
            await self._write({**self._base, "choices": [], "usage": usage})
        response = await self._open()
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def fail(self, error: EngineError) -> web.StreamResponse:
        """Say in the stream what went wrong; raise it if no stream has begun."""
        if self._response is None:
            raise error
        await self._write({"error": {"message": error.message, "code": error.status}})
        await self._response.write_eof()
        return self._response

    async def _send_new(self, job: Job, tokens: int, ended: bool) -> None:
        if self._sent_tokens == 0 and tokens:
            await self._send_head(job)
        if tokens <= self._sent_tokens and not ended:
            return
        shown = shown_text(job, self._text) if ended else self._safe_text(job.tokens[:tokens], job)
        piece, self._sent_characters = shown[self._sent_characters :], max(self._sent_characters, len(shown))
        more = self._tokens(job, self._sent_tokens, tokens)
        self._sent_tokens = tokens
        if piece or more.get("token_ids"):
            await self._send(self._choice({"content": piece} if self._chat else piece, None, **more))

    async def _send_head(self, job: Job) -> None:
        ids = {"prompt_token_ids": job.prompt} if self._body.return_token_ids else {}
        if self._chat:
            await self._send(self._choice({"role": "assistant", "content": ""}, None), **ids)
        elif ids:
            await self._send(self._choice("", None, **ids))

    async def _send_tools(self, job: Job) -> None:
        assert isinstance(self._body, ChatRequest)
        (choice,) = chat_reply(self._base["id"], self._body, job, self._text)["choices"]
        message, finish = choice["message"], choice["finish_reason"]
        await self._send_head(job)
        more = self._tokens(job, 0, len(job.tokens))
        await self._send(self._choice({"content": message["content"]}, None, **more))
        for index, call in enumerate(message.get("tool_calls") or []):
            await self._send(self._choice({"tool_calls": [{"index": index, **call}]}, None))
        await self._send(self._choice({}, finish, stop_reason=job.stop_reason))

    def _safe_text(self, tokens: list[int], job: Job) -> str:
        """Return what of the text later tokens cannot change."""
        if tokens and tokens[-1] in job.sampling.stop_ids:
            tokens = tokens[:-1]
        text = self._text.decode(tokens, keep_special=job.keep_special).rstrip(_UNFINISHED)
        # A stop string may be there before the model thread has said that the job is over.
        stops = [text.index(stop) for stop in self._body.stops if stop in text]
        return text[: min(stops, default=len(text) - self._held)]

    def _tokens(self, job: Job, first: int, last: int) -> dict[str, Any]:
        more: dict[str, Any] = {"token_ids": job.tokens[first:last]} if self._body.return_token_ids else {}
        if self._chat and self._body.logprobs:
            more["logprobs"] = {"content": chat_logprobs(job, self._text, first, last)}
        elif isinstance(self._body, CompletionRequest) and self._body.logprobs is not None:
            as_ids = self._body.return_tokens_as_token_ids
            more["logprobs"] = completion_logprobs(job, self._text, as_ids, first, last)
        return more

    def _choice(self, said: Any, finish_reason: str | None, **more: Any) -> dict[str, Any]:
        key = "delta" if self._chat else "text"
        if not self._chat and not isinstance(said, str):
            said = ""
        return {"index": 0, key: said, "logprobs": None, "finish_reason": finish_reason, **more}

    async def _send(self, choice: dict[str, Any], **more: Any) -> None:
        await self._write({**self._base, "choices": [choice], **more})

    async def _write(self, event: dict[str, Any]) -> None:
        response = await self._open()
        await response.write(b"data: %b\n\n" % json.dumps(event).encode())

    async def _open(self) -> web.StreamResponse:
        if self._response is None:
            self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await self._response.prepare(self._request)
        return self._response
