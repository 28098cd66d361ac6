"""What the protocols share whose words are not OpenAI's: reading a chat completion's message, delta and usage."""

from typing import Any

import msgspec

from leyden_gateway.reply import Reply


class Usage(msgspec.Struct):
    """A request's usage. Outside providers may leave it out."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


_USAGE = msgspec.json.Decoder(Usage)


def usage_of(reply: Reply) -> Usage:
    """Return what the reply took."""
    return _USAGE.decode(reply.usage)


def text_of(said: dict[str, Any]) -> str:
    """Return the text of a message or a delta."""
    return said.get("content") or said.get("refusal") or ""


def thought_of(said: dict[str, Any]) -> str:
    """Return the thinking in a message or a delta, if the replica parses it out."""
    return said.get("reasoning") or said.get("reasoning_content") or ""


def arguments_object(text: str) -> dict[str, Any]:
    """Return the arguments of a tool call as an object, where OpenAI has a string.

    A model may have written anything: what is no object becomes `{"arguments": <it>}`, so that the agent can tell the
    model that it is wrong, instead of breaking on a reply that its client cannot read.
    """
    try:
        value = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
