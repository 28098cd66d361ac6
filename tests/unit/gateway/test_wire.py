"""The client for whole answers, against servers that say exactly what a test tells them to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from leyden_gateway import wire as wire_module
from leyden_gateway.wire import Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Say = Callable[[asyncio.StreamWriter, int], None]


class Server:
    """Answers each request with what `say` writes, and remembers requests and connections."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.requests: list[bytes] = []
        self.connections = 0
        self.left = asyncio.Event()
        """A client has gone."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                self.requests.append(head + body)
                self._say(writer, len(self.requests))
        except asyncio.IncompleteReadError:
            self.left.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(say: Say, silence_s: float = 30, **headers: str) -> AsyncIterator[tuple[Wire, str, Server]]:
    server = Server(say)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    wire = Wire(headers, silence_s)
    try:
        yield wire, f"http://127.0.0.1:{port}", server
    finally:
        wire.close()
        listening.close()
        await listening.wait_closed()


async def _no_longer_sound(wire: Wire) -> None:
    """Wait until the only idle connection has heard what spoils it."""
    for (idle,) in list(wire._idle.values()):
        while idle.sound:
            await asyncio.sleep(0)


def always(answer: bytes) -> Say:
    return lambda writer, _: writer.write(answer)


async def test_exchanges_share_a_connection() -> None:
    async with serving(always(OK), Authorization="Bearer x") as (wire, url, server):
        for body in (b"{}", b"[1]"):
            assert await wire.post(f"{url}/v1/x", body) == (200, b"ok")
        assert server.connections == 1
        head, _, body = server.requests[1].partition(b"\r\n\r\n")
        host = url.removeprefix("http://").encode()
        assert head.split(b"\r\n") == [
            b"POST /v1/x HTTP/1.1", b"Host: " + host, b"Authorization: Bearer x", b"Content-Length: 3",
        ]  # fmt: skip
        assert body == b"[1]"


async def test_each_of_many_at_once_gets_its_own_answer() -> None:
    def echo(writer: asyncio.StreamWriter, _: int) -> None:
        body = server.requests[-1].partition(b"\r\n\r\n")[2]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with serving(echo) as (wire, url, server):
        for _ in range(3):
            bodies = [b"%d" % number for number in range(20)]
            answers = await asyncio.gather(*(wire.post(url, body) for body in bodies))
            assert [body for _, body in answers] == bodies
        assert server.connections == 20


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 503 Too busy\r\ncontent-length:0\r\n\r\n", 503, b""),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n", 200,
         b"abc0123456789"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
    ],
)  # fmt: skip
async def test_ways_to_write_an_answer(answer: bytes, status: int, body: bytes) -> None:
    async with serving(always(answer)) as (wire, url, server):
        for _ in range(2):
            assert await wire.post(url, b"{}") == (status, body)
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + OK,
    ],
)
async def test_connections_that_are_not_used_again(answer: bytes) -> None:
    """The last one's second answer was asked for by nobody: the next exchange must not take it for its own."""
    async with serving(always(answer)) as (wire, url, server):
        for _ in range(2):
            assert await wire.post(url, b"{}") == (200, b"ok")
        assert server.connections == 2


async def test_an_answer_that_ends_with_its_connection() -> None:
    def say(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        writer.close()

    async with serving(say) as (wire, url, _):
        assert await wire.post(url, b"{}") == (200, b"all of it")


async def test_a_connection_that_the_server_closed_while_idle() -> None:
    def say(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(OK)
        writer.close()

    async with serving(say) as (wire, url, server):
        assert await wire.post(url, b"{}") == (200, b"ok")
        await _no_longer_sound(wire)
        assert await wire.post(url, b"{}") == (200, b"ok")
        assert server.connections == 2


async def test_what_comes_unasked_is_nobodys_answer() -> None:
    writers: list[asyncio.StreamWriter] = []

    def say(writer: asyncio.StreamWriter, number: int) -> None:
        writers.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)

    async with serving(say) as (wire, url, server):
        assert await wire.post(url, b"{}") == (200, b"1")
        writers[0].write(OK)
        await _no_longer_sound(wire)
        assert await wire.post(url, b"{}") == (200, b"2")
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 2**21,
    ],
)
async def test_what_is_no_http(answer: bytes) -> None:
    async with serving(always(answer)) as (wire, url, _):
        with pytest.raises(ConnectionError, match="no HTTP"):
            await wire.post(url, b"{}")


@pytest.mark.parametrize("part", [b"", OK[:10], OK[:-1]])
async def test_a_server_that_goes_away(part: bytes) -> None:
    def say(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(part)
        writer.close()

    async with serving(say) as (wire, url, _):
        with pytest.raises((EOFError, OSError)):
            await wire.post(url, b"{}")


@pytest.mark.parametrize("part", [b"", OK[:10], OK[:-1]])
async def test_a_silent_server_is_left(part: bytes) -> None:
    async with serving(always(part), silence_s=0.2) as (wire, url, server):
        with pytest.raises(TimeoutError):
            await wire.post(url, b"{}")
        await asyncio.wait_for(server.left.wait(), 30)


async def test_who_stops_waiting_closes_the_connection() -> None:
    asked = asyncio.Event()
    async with serving(lambda writer, _: asked.set()) as (wire, url, server):
        waiting = asyncio.create_task(wire.post(url, b"{}"))
        await asked.wait()
        waiting.cancel()
        await asyncio.wait_for(server.left.wait(), 30)


async def test_a_connection_that_was_lost_before_it_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end has been told by then: whoever waited for it would wait as long as for a silent server."""
    plain = wire_module._connect

    async def lost(address: object) -> object:
        connection = await plain(address)  # type: ignore[arg-type]
        connection.connection_lost(None)
        return connection

    monkeypatch.setattr(wire_module, "_connect", lost)
    async with serving(always(b""), silence_s=60) as (wire, url, _):
        with pytest.raises(ConnectionError, match="went away"):
            await asyncio.wait_for(wire.post(url, b"{}"), 20)


async def test_nobody_there() -> None:
    async with serving(always(OK)) as (wire, url, _):
        pass
    with pytest.raises(ConnectionError):
        await wire.post(url, b"{}")


async def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leyden_gateway.wire._IDLE_S", 0.05)
    async with serving(always(OK)) as (wire, url, server):
        await wire.post(url, b"{}")
        await asyncio.wait_for(server.left.wait(), 30)
        assert not wire._idle


def test_a_header_of_several_lines() -> None:
    with pytest.raises(ValueError, match="lines"):
        Wire({"Authorization": "Bearer x\r\nHost: y"}, 1)
