"""The call to a replica. One that fails before any byte has left for the agent is replaced, or waited for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
import msgspec
import structlog

from leyden_gateway import metrics
from leyden_gateway.errors import ApiError
from leyden_gateway.live import Live, Piece, StreamBroken
from leyden_gateway.plan import Plan
from leyden_gateway.replicas import Replicas
from leyden_gateway.reply import Reply, read_reply
from leyden_gateway.wire import Wire
from leyden_ledger import ReplicaStatus

log = structlog.get_logger()
T = TypeVar("T")
_CONNECT_S = 5.0
_TRIES_WITH_500 = 4
"""A dying engine answers 500 for a moment; one that keeps answering 500 has something against this request."""


_RENDERED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"})
"""The fields of a request that make up its prompt."""


class _Counted(msgspec.Struct):
    count: int


_COUNTED = msgspec.json.Decoder(_Counted)


class ReplicaFailed(Exception):
    """A replica failed this try; another one, or a later one, may succeed."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass
class Stream:
    """A reply under way."""

    replica: str
    live: Live
    first: Piece
    rest: AsyncIterator[Piece]

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield all pieces. Raises ApiError (502) if the replica goes away: it is too late for another one."""
        yield self.first
        try:
            async for piece in self.rest:
                yield piece
        except (StreamBroken, aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(502, "upstream_broken", f"the replica went away in mid-reply: {error!r}") from error


class Upstream:
    """Sends calls to replicas."""

    def __init__(
        self, session: aiohttp.ClientSession, replicas: Replicas, api_key: str | None, timeout_s: float
    ) -> None:
        self._session = session
        self._replicas = replicas
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._wire = Wire(self._headers, timeout_s)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=timeout_s)

    async def call(self, plan: Plan) -> tuple[str, Reply]:
        """Return the id of the replica that answered, and its reply.

        Raises:
            ApiError: the replica refused the request (its own 4xx), timed out (504), or none was there (503).
        """
        replica, answer = await self._whole(plan, f"v1/{plan.endpoint}", upstream_body(plan, stream=False))
        return replica, read_reply(answer, plan.show_logprobs)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._wire.close()

    async def count_tokens(self, plan: Plan) -> int:
        """Return how many tokens the prompt of `plan` has, as a replica says. Raises like `call`."""
        asked = {name: value for name, value in plan.fields.items() if name in _RENDERED}
        _, answer = await self._whole(plan, "tokenize", msgspec.json.encode({**asked, "model": plan.model}))
        try:
            return _COUNTED.decode(answer).count
        except ValueError as error:
            raise ApiError(502, "bad_upstream_reply", f"the replica's count cannot be read: {error}") from error

    async def _whole(self, plan: Plan, path: str, body: bytes) -> tuple[str, bytes]:
        """Return the id of the replica that answered, and its answer."""

        async def whole(replica: ReplicaStatus) -> tuple[str, bytes]:
            with self._replicas.busy(replica), _failures():
                return replica.id, _sound(*await self._wire.post(f"{replica.url}/{path}", body))

        return await self._insist(plan, whole)

    @contextlib.asynccontextmanager
    async def stream(self, plan: Plan) -> AsyncIterator[Stream]:
        """Yield a reply whose first piece is there. Leaving early stops the replica. Raises like `call`."""
        body = upstream_body(plan, stream=True)
        async with contextlib.AsyncExitStack() as stack:

            async def begun(replica: ReplicaStatus) -> Stream:
                async with contextlib.AsyncExitStack() as tried:
                    tried.enter_context(self._replicas.busy(replica))
                    stream = await self._begin(plan, replica, body, tried)
                    await stack.enter_async_context(tried.pop_all())
                    return stream

            yield await self._insist(plan, begun)

    async def _begin(self, plan: Plan, replica: ReplicaStatus, body: bytes, stack: contextlib.AsyncExitStack) -> Stream:
        with _failures():
            url = f"{replica.url}/v1/{plan.endpoint}"
            posted = self._session.post(url, data=body, headers=self._headers, timeout=self._timeout)
            response = await stack.enter_async_context(posted)
            if response.status != 200:
                _sound(response.status, await response.read())
            live = Live(aiter(response.content), plan.show_logprobs)
            rest = live.pieces()
            first = await anext(rest, None)
        if first is None:
            raise ReplicaFailed("connection", "the stream held no token")
        return Stream(replica.id, live, first, rest)

    async def _insist(self, plan: Plan, attempt: Callable[[ReplicaStatus], Awaitable[T]]) -> T:
        """Try one replica after another, until one does it or patience runs out."""
        broken = 0
        while True:
            serving = await self._replicas.serving(plan.spec, plan.role, plan.version)
            if serving:
                replica = self._replicas.choose(serving, plan.sticky)
                try:
                    return await attempt(replica)
                except ReplicaFailed as failure:
                    self._note(replica, failure)
                    broken += failure.kind == "500"
                    if broken >= _TRIES_WITH_500:
                        raise ApiError(502, "upstream_error", f"the replica failed: {failure}") from failure
            await plan.patience.pause(self._replicas.news)

    def _note(self, replica: ReplicaStatus, failure: ReplicaFailed) -> None:
        metrics.REPLICA_FAILURES.labels(replica.id, failure.kind).inc()
        if self._replicas.failed(replica):
            log.warning("replica_failed", replica=replica.id, kind=failure.kind, error=str(failure))


def upstream_body(plan: Plan, stream: bool) -> bytes:
    """Return the body to send to a replica: always with token ids and logprobs."""
    fields = {**plan.fields, "model": plan.model, "stream": stream, "return_token_ids": True}
    fields["logprobs"] = True if plan.endpoint == "chat/completions" else fields.get("logprobs", 0)
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(fields)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn what can go wrong with a connection into ReplicaFailed, or into the 504 of a silent replica."""
    try:
        yield
    except (aiohttp.SocketTimeoutError, TimeoutError) as error:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            raise ReplicaFailed("connect", "connecting timed out") from error
        raise ApiError(504, "upstream_timeout", "the replica did not answer in time") from error
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError, StreamBroken) as error:
        raise ReplicaFailed("connection", f"{type(error).__name__}: {error}") from error


def _sound(status: int, body: bytes) -> bytes:
    """Return the body of a 200.

    404: the replica does not serve the version, perhaps because it restarted. 401 and 403 are between it and us.
    """
    if status == 200:
        return body
    message = _message(body)
    if status >= 500 or status in (401, 403, 404, 408, 429):
        raise ReplicaFailed(str(status), f"{status}: {message}")
    raise ApiError(status, "upstream_refused", message)


def _message(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:500].decode(errors="replace")
    error = found.get("error", found) if isinstance(found, dict) else found
    return str(error.get("message", error) if isinstance(error, dict) else error)[:2000]
