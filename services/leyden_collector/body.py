"""Reading a request's body within bounds: size after decompression, bytes in flight, time."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from aiohttp.web import RequestPayloadError

from leyden_collector.metrics import INFLIGHT_BYTES

ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})


class Refused(Exception):
    """The whole request is refused."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Budget:
    """The bytes that all requests in flight may hold together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @contextmanager
    def hold(self) -> Iterator["Hold"]:
        """Give back at the end whatever was taken."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self._change(-hold.taken)

    def take(self, count: int) -> None:
        """Raises Refused (429) if that is more than is left."""
        if self.used + count > self._limit:
            raise Refused(429, "too many spans are waiting to be stored; send again later")
        self._change(count)

    def _change(self, count: int) -> None:
        self.used += count
        INFLIGHT_BYTES.set(self.used)


class Hold:
    """One request's part of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        """Take `count` bytes more. Raises Refused (429)."""
        self._budget.take(count)
        self.taken += count


async def read_body(request: web.Request, hold: Hold, limit: int, timeout_s: float) -> bytes:
    """Return the decompressed body. Raises Refused.

    aiohttp decompresses piece by piece as the body is read, so that a small body that grows without end is cut off at
    `limit` and never exists in memory.
    """
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                hold.take(len(piece))
                pieces.append(piece)
    except TimeoutError as error:
        raise Refused(408, f"the body did not arrive within {math.ceil(timeout_s)} s") from error
    except (ContentEncodingError, HttpProcessingError, RequestPayloadError) as error:
        raise Refused(400, "the body cannot be decompressed as its Content-Encoding says") from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> Refused:
    return Refused(413, f"a body may have {limit} bytes after decompression; send fewer spans at once")
