"""A client for one kind of HTTP exchange: POST a body, get a whole answer. It costs a quarter of what aiohttp's does.

There are no redirects, cookies or compression; streams take the ordinary way.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

_CONNECT_S = 5.0
_IDLE_S = 15.0
"""How long a connection is kept without use."""
_PIECE = 2**20
"""Bytes that may wait to be read."""


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
            OSError, EOFError: it cannot be reached, went away, or does not speak HTTP/1.1.
        """
        address, start = _target(url)
        connection = self._take(address) or await _connect(address)
        try:
            request = b"%b%bContent-Length: %d\r\n\r\n%b" % (start, self._headers, len(body), body)
            status, answer, lasts = await connection.exchange(request, self._silence_s)
        except BaseException:
            # Also when the caller is cancelled: the server sees that nobody waits any more.
            connection.close()
            raise
        if lasts:
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


class _Counted(asyncio.StreamReaderProtocol):
    """Counts what comes: bytes that nobody has read could be taken for the next exchange's answer."""

    received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)


class _Connection:
    """One connection, for one exchange at a time."""

    expiry: asyncio.TimerHandle

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: _Counted) -> None:
        self._reader, self._writer, self._counted = reader, writer, counted
        self._read = 0

    @property
    def sound(self) -> bool:
        """Whether the server has not closed it, and has said nothing that nobody read."""
        gone = self._reader.at_eof() or self._writer.is_closing()
        return not gone and self._read == self._counted.received

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        self._writer.close()

    async def exchange(self, request: bytes, silence_s: float) -> tuple[int, bytes, bool]:
        """Return status, body, and whether the connection lasts. Raises like `Wire.post`."""
        async with asyncio.timeout(silence_s) as patience:
            self._writer.write(request)
            await self._writer.drain()
            status, lasts, headers = _head(await self._until(b"\r\n\r\n"))
            while status < 200:  # news before the answer
                status, lasts, headers = _head(await self._until(b"\r\n\r\n"))
            patience.reschedule(asyncio.get_running_loop().time() + silence_s)
            if b"chunked" in headers.get(b"transfer-encoding", b""):
                body = await self._chunks()
            elif b"content-length" in headers:
                body = await self._exactly(_number(headers[b"content-length"]))
            else:
                body, lasts = await self._reader.read(), False
        return status, body, lasts and self.sound

    async def _until(self, end: bytes) -> bytes:
        try:
            found = await self._reader.readuntil(end)
        except asyncio.LimitOverrunError as error:
            raise _malformed("a line without end") from error
        self._read += len(found)
        return found

    async def _exactly(self, size: int) -> bytes:
        found = await self._reader.readexactly(size)
        self._read += size
        return found

    async def _chunks(self) -> bytes:
        chunks = []
        while size := _number((await self._until(b"\r\n")).partition(b";")[0], 16):
            chunks.append(await self._exactly(size))
            await self._exactly(2)
        while await self._until(b"\r\n") != b"\r\n":
            pass  # a trailer
        return b"".join(chunks)


@lru_cache(maxsize=1024)
def _target(url: str) -> tuple[_Address, bytes]:
    """Return where to connect to, and how the request begins."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    address = _Address(parts.hostname or "", parts.port or (443 if tls else 80), tls)
    return address, f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n".encode("latin-1")


async def _connect(address: _Address) -> _Connection:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_PIECE, loop)
    counted = _Counted(reader, loop=loop)
    try:
        async with asyncio.timeout(_CONNECT_S):
            transport, _ = await loop.create_connection(
                lambda: counted, address.host, address.port, ssl=address.tls or None
            )
    except TimeoutError as error:
        raise ConnectionError("connecting timed out") from error
    return _Connection(reader, asyncio.StreamWriter(transport, counted, reader, loop), counted)


def _head(head: bytes) -> tuple[int, bool, dict[bytes, bytes]]:
    """Return status, whether the connection lasts, and headers by their names in small letters."""
    first, *lines = head[:-4].split(b"\r\n")
    version, _, status = first.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise _malformed(repr(first[:50]))
    pairs = (line.partition(b":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    lasts = version == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
    return _number(status[:3]), lasts, headers


def _number(digits: bytes, base: int = 10) -> int:
    try:
        number = int(digits, base)
    except ValueError:
        number = -1
    if number < 0:
        raise _malformed(repr(digits[:50]))
    return number


def _malformed(what: str) -> ConnectionError:
    return ConnectionError(f"the answer is no HTTP/1.1: {what}")
