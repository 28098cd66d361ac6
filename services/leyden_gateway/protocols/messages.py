"""Anthropic's messages (`POST /v1/messages`): a request becomes a chat completion, the reply content blocks."""

from collections.abc import Sequence

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Events, Head
from leyden_gateway.protocols.messages_events import BlockEvents
from leyden_gateway.protocols.messages_reading import read_ask
from leyden_gateway.protocols.messages_writing import error_object, message
from leyden_gateway.reply import Reply


class Messages:
    """The dialect."""

    stream_type = "text/event-stream"

    def read(self, body: bytes) -> Ask:
        """Read a request."""
        return read_ask(body, ("model", "messages", "max_tokens"))

    def read_to_count(self, body: bytes) -> Ask:
        """Read a request to count the tokens of its prompt: it has no `max_tokens`."""
        return read_ask(body, ("model", "messages"))

    def answer(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Write a message."""
        return msgspec.json.encode(message(ask, replies[0]))

    def events(self, ask: Ask, head: Head) -> Events:
        """Begin a stream."""
        return BlockEvents(ask, head)

    def refuse(self, error: ApiError) -> bytes:
        """Write an error."""
        return msgspec.json.encode(error_object(error))
