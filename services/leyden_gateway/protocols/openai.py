"""What OpenAI's three endpoints share: errors, usage, and server-sent events."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.fields import Decoders, Fields, is_given
from leyden_gateway.reply import Reply

EVENT_STREAM = "text/event-stream"
DONE = b"data: [DONE]\n\n"
NEVER = frozenset(
    {"include_reasoning", "return_token_ids", "return_tokens_as_token_ids", "prompt_logprobs", "echo", "stream_options"}
)
"""Fields that change what a reply holds; `include_reasoning: false` makes vLLM leave out ids and logprobs."""
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Thought(msgspec.Struct):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    """What a reply cost, in tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Thought | None = None


_USAGE = msgspec.json.Decoder(Usage | None)


def passed_on(fields: Fields, read: Decoders) -> dict[str, Any]:
    """Return the fields that the replica judges: those that are not `read` here and not null."""
    return {
        name: value
        for name, value in fields.items()
        if name not in read and name not in NEVER and is_given(fields, name)
    }


def error_object(error: ApiError) -> dict[str, Any]:
    """Return the `error` of an answer."""
    kind = "server_error" if error.status >= 500 else _TYPES.get(error.status, "invalid_request_error")
    return {"message": error.message, "type": kind, "param": None, "code": error.code}


def error_body(error: ApiError) -> bytes:
    """Return `{"error": {"message", "type", "param", "code"}}`."""
    return msgspec.json.encode({"error": error_object(error)})


def data(event: Any) -> bytes:
    """Return one server-sent event without a name."""
    return b"data: %b\n\n" % msgspec.json.encode(event)


def usage(replies: Sequence[Reply]) -> Any:
    """Return the usage of one request: its prompt counts once, its samples together."""
    if len(replies) == 1:
        return replies[0].usage
    each = [read_usage(reply) for reply in replies]
    prompt, completion = each[0].prompt_tokens, sum(one.completion_tokens for one in each)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def read_usage(reply: Reply) -> Usage:
    """Return a reply's usage. Providers may leave out any of it."""
    try:
        return _USAGE.decode(reply.usage) or Usage()
    except msgspec.DecodeError:
        return Usage()
