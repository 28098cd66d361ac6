"""What a protocol is: it reads requests, and writes replies, streams and errors, in one vendor's words.

A protocol knows nothing of tokens, replicas or the ledger, and the rest of the gateway nothing of any vendor's words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.reply import Reply

Delta = dict[str, Any]
"""A piece of a message: the `delta` of a chat completion chunk. Role, text, tool calls, reasoning."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is known when a reply begins."""

    id: str
    created: int
    """Seconds since the epoch."""
    prompt_tokens: int


class Events(Protocol):
    """The stream of one reply. Each method returns bytes to send, perhaps none."""

    def piece(self, index: int, delta: Delta, logprobs: msgspec.Raw | None) -> bytes:
        """Write a piece of sample `index`, with its logprobs if the agent asked for them."""
        ...

    def finish(self, replies: Sequence[Reply]) -> bytes:
        """Write the end: the finish reason of each sample, usage, and what closes the stream."""
        ...

    def fail(self, error: ApiError) -> bytes:
        """Write an error in the middle of the stream."""
        ...


class Dialect(Protocol):
    """One protocol."""

    stream_type: str
    """The content type of a stream."""

    def read(self, body: bytes) -> Ask:
        """Read a request. Raises ApiError (400)."""
        ...

    def answer(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Return the body of the answer: one reply for each sample."""
        ...

    def events(self, ask: Ask, head: Head) -> Events:
        """Begin a stream."""
        ...

    def refuse(self, error: ApiError) -> bytes:
        """Return the body of an error."""
        ...
