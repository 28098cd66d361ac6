"""Replies in OpenAI's shape, with vLLM's additions: token ids, prompt logprobs, stop reason."""

import time
from typing import Any

from leyden_engine.job import Job, PromptToken, Top
from leyden_engine.protocol import ChatRequest, CompletionRequest
from leyden_engine.text import Text
from leyden_engine.tools import parse_tool_calls

_LOWEST = -9999.0
"""Stands for the logprob of a token that cannot be sampled: JSON has no infinity."""


def chat_reply(response_id: str, request: ChatRequest, job: Job, text: Text) -> dict[str, Any]:
    """Return the chat completion for a finished job."""
    content: str | None = shown_text(job, text)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    calls: list[dict[str, Any]] = []
    if request.tools and request.tool_choice != "none":
        message["content"], calls = parse_tool_calls(content or "")
    if calls:
        message["tool_calls"] = calls[:1] if request.parallel_tool_calls is False else calls
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "logprobs": {"content": chat_logprobs(job, text)} if request.logprobs else None,
        "finish_reason": "tool_calls" if calls else job.finish_reason,
        "stop_reason": job.stop_reason,
    }
    reply = _envelope(response_id, "chat.completion", request.model, job, choice)
    if request.return_token_ids:
        choice["token_ids"] = job.tokens
        reply["prompt_token_ids"] = job.prompt
    if request.prompt_logprobs is not None:
        reply["prompt_logprobs"] = _prompt_logprobs(job.prompt_tokens, text)
    return reply


def completion_reply(response_id: str, request: CompletionRequest, job: Job, text: Text) -> dict[str, Any]:
    """Return the text completion for a finished job."""
    choice: dict[str, Any] = {
        "index": 0,
        "text": shown_text(job, text),
        "logprobs": None
        if request.logprobs is None
        else completion_logprobs(job, text, request.return_tokens_as_token_ids),
        "finish_reason": job.finish_reason,
        "stop_reason": job.stop_reason,
    }
    if request.return_token_ids:
        choice["token_ids"] = job.tokens
        choice["prompt_token_ids"] = job.prompt
    if request.prompt_logprobs is not None:
        choice["prompt_logprobs"] = _prompt_logprobs(job.prompt_tokens, text)
    return _envelope(response_id, "text_completion", request.model, job, choice)


def _envelope(response_id: str, kind: str, model: str, job: Job, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": response_id,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(job.prompt),
            "completion_tokens": len(job.tokens),
            "total_tokens": len(job.prompt) + len(job.tokens),
        },
    }


def shown_text(job: Job, text: Text) -> str:
    """Return the reply's text: without the token that ended it, and cut before a stop string. Ids stay whole."""
    ended = job.finish_reason == "stop" and not isinstance(job.stop_reason, str)
    shown = text.decode(job.tokens[:-1] if ended else job.tokens, keep_special=job.keep_special)
    return shown[: shown.index(job.stop_reason)] if isinstance(job.stop_reason, str) else shown


def chat_logprobs(job: Job, text: Text, first: int = 0, last: int | None = None) -> list[dict[str, Any]]:
    """Return the logprobs of the tokens from `first` to before `last`, as a chat completion has them."""
    return [
        {**_token(id, logprob, text), "top_logprobs": [_token(*one, text) for one in top]}
        for id, logprob, top in _tokens(job, first, last)
    ]


def _tokens(job: Job, first: int, last: int | None) -> list[tuple[int, float, Top]]:
    # The model thread may be adding to them: cut all to the same length first.
    end = len(job.tokens) if last is None else last
    tops = job.tops[first:end] or [[]] * (end - first)
    return list(zip(job.tokens[first:end], job.logprobs[first:end], tops, strict=True))


def _token(id: int, logprob: float, text: Text) -> dict[str, Any]:
    piece = text.piece(id)
    return {"token": piece, "logprob": max(logprob, _LOWEST), "bytes": list(piece.encode())}


def completion_logprobs(job: Job, text: Text, as_ids: bool, first: int = 0, last: int | None = None) -> dict[str, Any]:
    """Return the logprobs of the tokens from `first` to before `last`, as a text completion has them."""
    name = "token_id:{}".format if as_ids else text.piece
    tokens = _tokens(job, first, last)
    before = sum(len(text.piece(id)) for id in job.tokens[:first])
    pieces = [name(id) for id, _, _ in tokens]
    return {
        "tokens": pieces,
        "token_logprobs": [logprob for _, logprob, _ in tokens],
        "top_logprobs": [
            {name(id): max(logprob, _LOWEST) for id, logprob in [*top, (own, value)]} for own, value, top in tokens
        ],
        "text_offset": [before + sum(map(len, pieces[:index])) for index in range(len(pieces))],
    }


def _prompt_logprobs(tokens: list[PromptToken], text: Text) -> list[dict[str, Any] | None]:
    """Return one entry a prompt token, by token id; the first token has none."""
    return [None, *(_prompt_entry(token, text) for token in tokens)]


def _prompt_entry(token: PromptToken, text: Text) -> dict[str, Any]:
    ranked = [(id, logprob, rank) for rank, (id, logprob) in enumerate(token.top, 1)]
    return {
        str(id): {"logprob": max(logprob, _LOWEST), "rank": rank, "decoded_token": text.piece(id)}
        for id, logprob, rank in [(token.id, token.logprob, token.rank), *ranked]
    }
