"""A connection to Redis that many commands share: each is sent as it comes, and replies are handed out in order.

redis-py gives each command a connection of its own for its time, which costs several times what the command does.
"""

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

_FRESH_S = 15.0
"""A connection that has been silent for longer is not trusted any more."""

Reply = asyncio.Future[Any]


class Lane:
    """The connection; it is opened when it is needed, and again when it was lost."""

    def __init__(self, pool: BlockingConnectionPool, wait_s: float) -> None:
        self._pool = pool
        self._wait_s = wait_s
        self._open: _Open | None = None
        self._opening: asyncio.Task[_Open] | None = None

    async def run(self, *command: str | int | float) -> Any:
        """Return Redis's reply.

        Raises:
            redis.ConnectionError: the connection was lost; Redis may have done the command.
            redis.TimeoutError: no reply came in time; the same.
            redis.ResponseError: Redis refused the command.
        """
        lane = self._open
        if lane is None or not lane.fresh:
            lane = await self._connect()
        # Its annotation takes tuples of one.
        return await lane.run(hiredis.pack_command(command))  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Close the connection."""
        if self._open is not None:
            await self._open.close()

    async def _connect(self) -> "_Open":
        """Return a connection that is open: all who need one wait for the same, and share its failure."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._reopen())
        return await asyncio.shield(self._opening)

    async def _reopen(self) -> "_Open":
        if self._open is not None:
            await self._open.close()
        # Each command has its own time to wait; the connection as such waits for ever.
        settings = {**self._pool.connection_kwargs, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
        connection = self._pool.connection_class(**settings)
        try:
            async with asyncio.timeout(self._wait_s):
                await connection.connect()
        except TimeoutError as error:
            raise exceptions.TimeoutError("Redis did not answer in time") from error
        self._open = _Open(connection, self._wait_s)
        return self._open


class _Open:
    """An open connection, and those who wait for its replies."""

    def __init__(self, connection: AbstractConnection, wait_s: float) -> None:
        self._connection = connection
        self._wait_s = wait_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Reply] = deque()
        self._heard_at = self._loop.time()
        self._reading = asyncio.create_task(self._read())

    @property
    def fresh(self) -> bool:
        """Whether the connection is sound, as far as is known."""
        heard_lately = self._waiting or self._loop.time() - self._heard_at < _FRESH_S
        return bool(heard_lately) and not self._reading.done()

    async def run(self, packed: bytes) -> Any:
        """Send a command and return its reply."""
        reply = self._loop.create_future()
        self._waiting.append(reply)
        overdue = self._loop.call_later(self._wait_s, self._give_up)
        try:
            await self._connection.send_packed_command(packed, check_health=False)
            return await reply
        finally:
            overdue.cancel()
            reply.cancel()

    async def close(self) -> None:
        """Close the connection. Whoever waits gets a ConnectionError."""
        self._reading.cancel()
        await asyncio.wait([self._reading])

    def _give_up(self) -> None:
        # What is late holds up all that comes after it.
        self._fail(exceptions.TimeoutError("Redis did not answer in time"))
        self._reading.cancel()

    async def _read(self) -> None:
        """Hand out replies until the connection ends. One that nobody waits for any more is dropped."""
        try:
            while True:
                try:
                    found = await self._connection.read_response()
                except exceptions.ResponseError as refusal:
                    found = refusal
                self._heard_at = self._loop.time()
                reply = self._waiting.popleft()
                if reply.done():
                    continue
                if isinstance(found, exceptions.ResponseError):
                    reply.set_exception(found)
                else:
                    reply.set_result(found)
        except exceptions.ConnectionError as error:
            self._fail(error)
        finally:
            self._fail(exceptions.ConnectionError("the connection to Redis was closed"))
            await self._connection.disconnect(nowait=True)

    def _fail(self, error: Exception) -> None:
        while self._waiting:
            reply = self._waiting.popleft()
            if not reply.done():
                reply.set_exception(error)
