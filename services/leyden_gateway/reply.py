"""The replica's reply: its tokens for the record, the rest for the agent. One parse, no re-tokenizing."""

from typing import Any

import msgspec

from leyden_gateway.errors import ApiError
from leyden_traces import FINISH_REASONS, MalformedSpan, check_tokens, pack_ids, pack_logprobs


class _Token(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Token]


class _Choice(msgspec.Struct):
    message: msgspec.Raw
    finish_reason: str
    token_ids: list[int]
    logprobs: _Logprobs


class _Reply(msgspec.Struct):
    id: str
    created: int
    choices: list[_Choice]
    usage: msgspec.Raw
    prompt_token_ids: list[int]


class _Usage(msgspec.Struct):
    completion_tokens: int


class _FullChoice(msgspec.Struct):
    logprobs: msgspec.Raw


class _FullReply(msgspec.Struct):
    choices: list[_FullChoice]


_REPLY = msgspec.json.Decoder(_Reply)
_USAGE = msgspec.json.Decoder(_Usage)
_FULL = msgspec.json.Decoder(_FullReply)


class Reply(msgspec.Struct, frozen=True):
    """One reply, checked."""

    id: str
    created: int
    message: msgspec.Raw
    finish_reason: str
    usage: msgspec.Raw
    prompt_ids: bytes
    response_ids: bytes
    logprobs: bytes
    shown_logprobs: msgspec.Raw | None
    """As the agent asked for them; None if it did not."""

    def body(self, model: str) -> bytes:
        """Return the chat completion that the agent gets, without what it did not ask for."""
        choice: dict[str, Any] = {
            "index": 0,
            "message": self.message,
            "logprobs": self.shown_logprobs,
            "finish_reason": self.finish_reason,
        }
        return msgspec.json.encode(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": self.created,
                "model": model,
                "choices": [choice],
                "usage": self.usage,
            }
        )


def read_reply(body: bytes, show_logprobs: bool) -> Reply:
    """Read and check a replica's reply.

    Raises:
        ApiError: 502, the reply cannot be recorded exactly: it must not reach the agent either.
    """
    try:
        reply = _REPLY.decode(body)
        completion_tokens = _USAGE.decode(reply.usage).completion_tokens
        (choice,) = reply.choices
        prompt_ids, response_ids = pack_ids(reply.prompt_token_ids), pack_ids(choice.token_ids)
        logprobs = pack_logprobs([token.logprob for token in choice.logprobs.content])
        check_tokens(prompt_ids, response_ids, logprobs)
    except (ValueError, MalformedSpan) as error:
        raise _unusable(str(error)) from error
    if len(choice.token_ids) != completion_tokens:
        raise _unusable(f"{len(choice.token_ids)} token ids but usage says {completion_tokens}")
    if choice.finish_reason not in FINISH_REASONS:
        raise _unusable(f"finish_reason is {choice.finish_reason!r}")
    return Reply(
        id=reply.id,
        created=reply.created,
        message=choice.message,
        finish_reason=choice.finish_reason,
        usage=reply.usage,
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        logprobs=logprobs,
        shown_logprobs=_FULL.decode(body).choices[0].logprobs if show_logprobs else None,
    )


def _unusable(reason: str) -> ApiError:
    return ApiError(502, "bad_upstream_reply", f"the replica's reply cannot be recorded: {reason}")
