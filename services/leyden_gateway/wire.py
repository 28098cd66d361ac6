"""A client for one kind of HTTP exchange: POST a body, get a whole answer. It costs a quarter of what aiohttp's does.

`httptools` (llhttp, the parser of Node) reads the answers; here are the connections. There are no redirects, cookies or
compression; streams take the ordinary way.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

_CONNECT_S = 5.0
_IDLE_S = 15.0
"""How long a connection is kept without use."""
_HEAD_BYTES = 2**16
"""Before the end of an answer's headers."""


class _Address(NamedTuple):
    host: str
    port: int
    tls: bool


class Wire:
    """Connections to any servers, kept open between exchanges."""

    def __init__(self, headers: Mapping[str, str], silence_s: float) -> None:
        """Send `headers` with every request; take a server that says nothing for `silence_s` for dead.

        Raises ValueError for a header of several lines.
        """
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has several lines")
        self._headers = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
        self._silence_s = silence_s
        self._idle: defaultdict[_Address, deque[_Connection]] = defaultdict(deque)

    async def post(self, url: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer.

        Raises:
            TimeoutError: the server was silent.
            OSError: it cannot be reached, went away, or does not speak HTTP.
        """
        address, start = _target(url)
        connection = self._take(address) or await _connect(address)
        request = b"%b%bContent-Length: %d\r\n\r\n%b" % (start, self._headers, len(body), body)
        try:
            status, answer = await connection.exchange(request, self._silence_s)
        except BaseException:
            # Also when the caller is cancelled: the server sees that nobody waits any more.
            connection.close()
            raise
        if connection.sound:
            self._keep(address, connection)
        else:
            connection.close()
        return status, answer

    def close(self) -> None:
        """Close the connections that are idle."""
        for address in list(self._idle):
            while connection := self._take(address):
                connection.close()

    def _take(self, address: _Address) -> "_Connection | None":
        """Return a connection that is still open, the one used last first."""
        while idle := self._idle.get(address):
            connection = idle.pop()
            connection.expiry.cancel()
            if connection.sound:
                return connection
            connection.close()
        return None

    def _keep(self, address: _Address, connection: "_Connection") -> None:
        connection.expiry = asyncio.get_running_loop().call_later(_IDLE_S, self._expire, address, connection)
        self._idle[address].append(connection)

    def _expire(self, address: _Address, connection: "_Connection") -> None:
        self._idle[address].remove(connection)
        if not self._idle[address]:
            del self._idle[address]
        connection.close()


class _Answer:
    """One answer, told by the parser piece by piece."""

    def __init__(self) -> None:
        self.status = 0
        """0 until the headers are whole."""
        self.body: list[bytes] = []
        self.done = False
        self.framed = False
        """It says where it ends. If it does not, the end of the connection is its end."""
        self.lasts = False
        """The connection may be used again."""
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0

    def take(self, data: bytes) -> None:
        """Read on. Raises httptools.HttpParserError, HttpParserUpgrade."""
        if not self.status:
            self._head_bytes += len(data)
        self._parser.feed_data(data)
        if not self.status and self._head_bytes > _HEAD_BYTES:
            raise httptools.HttpParserError("headers without end")

    # What the parser calls

    def on_message_begin(self) -> None:
        if self.done:  # a second answer, which nobody asked for
            self.lasts = False
            raise httptools.HttpParserError("more than one answer")

    def on_header(self, name: bytes, _: bytes) -> None:
        self.framed = self.framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        if self.status < 200:  # news before the answer
            self.status, self.framed = 0, False
            return
        self.done, self.lasts = True, self._parser.should_keep_alive()


class _Connection(asyncio.Protocol):
    """One connection, for one exchange at a time."""

    expiry: asyncio.TimerHandle
    _watching: asyncio.TimerHandle
    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.sound = True
        """The server has not closed it, and has said nothing that nobody asked for."""
        self._loop = asyncio.get_running_loop()
        self._answer: _Answer | None = None
        self._whole: asyncio.Future[None] | None = None
        self._heard_at = 0.0

    async def exchange(self, request: bytes, silence_s: float) -> tuple[int, bytes]:
        """Return status and body. Raises like `Wire.post`."""
        if not self.sound:  # lost since it was opened: nobody will be told of that any more
            raise ConnectionError("the server went away")
        answer = self._answer = _Answer()
        whole = self._whole = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._watching = self._loop.call_later(silence_s, self._watch, whole, silence_s)
        try:
            self._transport.write(request)
            await whole
        finally:
            self._watching.cancel()
            self._answer = self._whole = None
        self.sound = self.sound and answer.lasts
        return answer.status, b"".join(answer.body)

    def _watch(self, whole: asyncio.Future[None], silence_s: float) -> None:
        """End an exchange in which the server says nothing any more."""
        left = self._heard_at + silence_s - self._loop.time()
        if left > 0:
            self._watching = self._loop.call_later(left, self._watch, whole, silence_s)
        elif not whole.done():
            whole.set_exception(TimeoutError("the server was silent"))

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        self.sound = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not by isinstance: uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.sound = False
            return
        self._heard_at = self._loop.time()
        try:
            answer.take(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.sound = False
            if not answer.done:
                self._end(ConnectionError(f"the answer is no HTTP: {error}"))
        if answer.done:
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self.sound = False
        answer = self._answer
        ended = answer is not None and answer.status and not answer.framed and error is None
        self._end(None if ended else ConnectionError(f"the server went away: {error or 'in mid-answer'}"))

    def _end(self, error: Exception | None = None) -> None:
        if self._whole is None or self._whole.done():
            return
        if error is None:
            self._whole.set_result(None)
        else:
            self._whole.set_exception(error)


@lru_cache(maxsize=1024)
def _target(url: str) -> tuple[_Address, bytes]:
    """Return where to connect to, and how the request begins."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    address = _Address(parts.hostname or "", parts.port or (443 if tls else 80), tls)
    return address, f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n".encode("latin-1")


async def _connect(address: _Address) -> _Connection:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                _Connection, address.host, address.port, ssl=address.tls or None
            )
    except TimeoutError as error:
        raise ConnectionError("connecting timed out") from error
    return connection
