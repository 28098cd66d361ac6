"""Reading an HTTP request's body within bounds: size after decompression, bytes in flight, time."""

import asyncio
import math

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from aiohttp.web import RequestPayloadError

from leyden_collector.budget import Hold
from leyden_collector.refusal import Refused

ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})


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
