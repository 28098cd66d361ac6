"""How a reply leaves: whole, as a stream of the finished reply, or piece by piece while the replica still writes it."""

import asyncio
import contextlib
from collections.abc import Sequence

import structlog
from aiohttp import web
from redis.exceptions import RedisError

from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Dialect, Events, Head
from leyden_gateway.recording import Record, Unrecorded
from leyden_gateway.reply import Reply
from leyden_gateway.upstream import Stream
from leyden_ledger import LedgerError

log = structlog.get_logger()
REQUEST_ID = "x-request-id"


class StreamFailed(Exception):
    """A stream failed after it had begun; the agent has been told in the stream."""

    def __init__(self, error: ApiError, response: web.StreamResponse) -> None:
        super().__init__(error.message)
        self.error, self.response = error, response


def whole(dialect: Dialect, ask: Ask, replies: Sequence[Reply], request_id: str) -> web.Response:
    """Return the answer with finished replies; as a stream in one piece, if a stream was asked for."""
    headers = {REQUEST_ID: request_id}
    if not ask.stream:
        return web.Response(body=dialect.answer(ask, replies), content_type="application/json", headers=headers)
    first = replies[0]
    events = dialect.events(ask, Head(first.id, first.created, first.prompt_tokens))
    parts = [part for index, reply in enumerate(replies) for part in _replayed(events, index, reply)]
    body = b"".join(parts) + events.finish(replies)
    return web.Response(body=body, headers={**headers, **_stream_headers(dialect)})


async def pass_on(
    request: web.Request, dialect: Dialect, ask: Ask, stream: Stream, record: Record | Unrecorded, request_id: str
) -> web.StreamResponse:
    """Send a reply on while it is written. It is counted before its first piece leaves.

    An agent that hangs up has acted on what it got: that is recorded, as `cut`. If the replica goes away there is no
    record, and so the attempt is incomplete and runs again: an agent that saw half a reply may do anything.

    Raises:
        Fenced: nothing has left.
        StreamFailed: the replica went away.
    """
    live = stream.live
    answer = web.StreamResponse(headers={REQUEST_ID: request_id, **_stream_headers(dialect)})
    events = dialect.events(ask, Head(live.id, live.created, len(live.prompt_ids) // 4))
    await _count(record, stream)
    try:
        await answer.prepare(request)
        async for piece in stream.pieces():
            await answer.write(events.piece(0, piece.delta, piece.logprobs))
        reply = live.reply()
    except (asyncio.CancelledError, ConnectionError):
        record.close(stream.replica, live.cut())
        raise
    except ApiError as error:
        log.warning("stream_broke", request=request_id, code=error.code, why=error.message)
        with contextlib.suppress(ConnectionError):
            await answer.write(events.fail(error))
            await answer.write_eof()
        raise StreamFailed(error, answer) from error
    record.close(stream.replica, reply)
    with contextlib.suppress(ConnectionError):
        await answer.write(events.finish([reply]))
        await answer.write_eof()
    return answer


async def _count(record: Record | Unrecorded, stream: Stream) -> None:
    """Count the call. An agent that leaves meanwhile must not part the count from its span."""
    counting = asyncio.ensure_future(record.count())
    try:
        await asyncio.shield(counting)
    except asyncio.CancelledError:
        with contextlib.suppress(LedgerError, RedisError):
            await counting
            record.close(stream.replica, stream.live.cut())
        raise


def _replayed(events: Events, index: int, reply: Reply) -> list[bytes]:
    """Return a finished reply in the pieces of a stream. Its logprobs go with the first piece of text, if any."""
    deltas = list(reply.deltas())
    text = min(1, len(deltas) - 1)
    return [
        events.piece(index, delta, reply.shown_logprobs if place == text else None)
        for place, delta in enumerate(deltas)
    ]


def _stream_headers(dialect: Dialect) -> dict[str, str]:
    return {"Content-Type": dialect.stream_type, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
