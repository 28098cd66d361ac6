"""The replica's reply: its tokens for the record, the rest for the agent. One parse, no re-tokenizing."""

from collections.abc import Iterator
from typing import Any

import msgspec

from leyden_gateway.errors import ApiError
from leyden_traces import FINISH_REASONS, MalformedSpan, check_tokens, pack_ids, pack_logprobs

NOTHING = msgspec.Raw(b"null")
"""msgspec has no optional `Raw`."""


class Token(msgspec.Struct, gc=False):
    """One entry of a chat completion's logprobs; all else in it is skipped."""

    logprob: float


class Logprobs(msgspec.Struct):
    """A chat completion has `content`, a text completion `token_logprobs`."""

    content: list[Token] | None = None
    token_logprobs: list[float] | None = None

    @property
    def values(self) -> list[float]:
        """One logprob a token. Raises ValueError if there are none."""
        if self.content is not None:
            return [token.logprob for token in self.content]
        if self.token_logprobs is not None:
            return self.token_logprobs
        raise ValueError("it has no logprobs")


class _Choice(msgspec.Struct):
    finish_reason: str
    token_ids: list[int]
    logprobs: Logprobs
    message: msgspec.Raw = NOTHING
    text: str = ""
    prompt_token_ids: list[int] | None = None
    stop_reason: int | str | None = None


class _Reply(msgspec.Struct):
    id: str
    created: int
    choices: list[_Choice]
    usage: msgspec.Raw
    prompt_token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int


class _FullChoice(msgspec.Struct):
    logprobs: msgspec.Raw


class _FullReply(msgspec.Struct):
    choices: list[_FullChoice]


_REPLY = msgspec.json.Decoder(_Reply)
_USAGE = msgspec.json.Decoder(_Usage)
_FULL = msgspec.json.Decoder(_FullReply)
_MESSAGE = msgspec.json.Decoder(dict[str, Any])


class Reply(msgspec.Struct, frozen=True):
    """One reply, checked."""

    id: str
    created: int
    message: msgspec.Raw
    """A chat completion's message, as the replica wrote it."""
    finish_reason: str
    usage: msgspec.Raw
    prompt_ids: bytes
    response_ids: bytes
    logprobs: bytes
    shown_logprobs: msgspec.Raw | None = None
    """As the agent asked for them; None if it did not."""
    stop_reason: int | str | None = None
    """The stop string, or the id of the token, that ended it, if the agent named one."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return len(self.prompt_ids) // 4

    @property
    def response_tokens(self) -> int:
        """Length of the response in tokens."""
        return len(self.response_ids) // 4

    def read_message(self) -> dict[str, Any]:
        """Return the message decoded."""
        return _MESSAGE.decode(self.message)

    def deltas(self) -> Iterator[dict[str, Any]]:
        """Yield the pieces of a stream that add up to the message."""
        message = self.read_message()
        nothing = None if message.get("content") is None else ""
        yield {"role": message.get("role", "assistant"), "content": nothing}
        for name in ("reasoning", "reasoning_content", "content", "refusal"):
            if message.get(name):
                yield {name: message[name]}
        for index, call in enumerate(message.get("tool_calls") or []):
            yield {"tool_calls": [{"index": index, **call}]}


def read_reply(body: bytes, show_logprobs: bool) -> Reply:
    """Read and check a replica's reply.

    Raises:
        ApiError: 502, the reply cannot be recorded exactly: it must not reach the agent either.
    """
    try:
        reply = _REPLY.decode(body)
        (choice,) = reply.choices
        prompt_ids = pack_ids(reply.prompt_token_ids or choice.prompt_token_ids or [])
        response_ids, logprobs = pack_ids(choice.token_ids), pack_logprobs(choice.logprobs.values)
    except (ValueError, MalformedSpan) as error:
        raise unusable(str(error)) from error
    found = Reply(
        id=reply.id,
        created=reply.created,
        message=text_message(choice.text) if choice.message == NOTHING else choice.message,
        finish_reason=choice.finish_reason,
        usage=reply.usage,
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        logprobs=logprobs,
        shown_logprobs=_FULL.decode(body).choices[0].logprobs if show_logprobs else None,
        stop_reason=choice.stop_reason,
    )
    check_whole(found)
    return found


def check_whole(reply: Reply) -> None:
    """Check that ids, logprobs and usage fit each other. Raises ApiError (502)."""
    try:
        check_tokens(reply.prompt_ids, reply.response_ids, reply.logprobs)
        completion_tokens = _USAGE.decode(reply.usage).completion_tokens
    except (ValueError, MalformedSpan) as error:
        raise unusable(str(error)) from error
    if reply.response_tokens != completion_tokens:
        raise unusable(f"{reply.response_tokens} token ids but usage says {completion_tokens}")
    if reply.finish_reason not in FINISH_REASONS:
        raise unusable(f"finish_reason is {reply.finish_reason!r}")


def text_message(text: str) -> msgspec.Raw:
    """Return a text completion's text as a message."""
    return msgspec.Raw(msgspec.json.encode({"role": "assistant", "content": text}))


def unusable(reason: str) -> ApiError:
    """Return the error for a reply that cannot be recorded."""
    return ApiError(502, "bad_upstream_reply", f"the replica's reply cannot be recorded: {reason}")
