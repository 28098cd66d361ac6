"""The call to a replica. One that fails before any byte has left for the agent is replaced, or waited for."""

import asyncio

import aiohttp
import msgspec
import structlog

from leyden_contracts import RunSpec, adapter_name
from leyden_gateway import metrics
from leyden_gateway.errors import ApiError
from leyden_gateway.replicas import Patience, Replicas
from leyden_gateway.request import upstream_body
from leyden_ledger import ReplicaStatus

log = structlog.get_logger()
_CONNECT_S = 5.0
_TRIES_WITH_500 = 4
"""A dying engine answers 500 for a moment; one that keeps answering 500 has something against this request."""


class ReplicaFailed(Exception):
    """A replica failed this try; another one, or a later one, may succeed."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


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
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=timeout_s)

    async def call(
        self, spec: RunSpec, role: str, version: int, episode: str, fields: dict, patience: Patience
    ) -> tuple[str, bytes]:
        """Return the id of the replica that answered, and its answer's body.

        Raises:
            ApiError: the replica refused the request (its own 4xx), timed out (504), or none was there (503).
        """
        model = spec.base_model if version == 0 else adapter_name(str(spec.id), role, version)
        body = upstream_body(model, fields)
        broken = 0
        while True:
            serving = await self._replicas.serving(spec, role, version)
            if serving:
                replica = self._replicas.choose(serving, episode)
                try:
                    with self._replicas.busy(replica):
                        return replica.id, await self._try(replica, body)
                except ReplicaFailed as failure:
                    self._note(replica, failure)
                    broken += failure.kind == "500"
                    if broken >= _TRIES_WITH_500:
                        raise ApiError(502, "upstream_error", f"the replica failed: {failure}") from failure
            await patience.pause()

    async def _try(self, replica: ReplicaStatus, body: bytes) -> bytes:
        url = f"{replica.url}/v1/chat/completions"
        try:
            async with self._session.post(url, data=body, headers=self._headers, timeout=self._timeout) as response:
                answer = await response.read()
        except (aiohttp.SocketTimeoutError, TimeoutError) as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise ReplicaFailed("connect", "connecting timed out") from error
            raise ApiError(504, "upstream_timeout", "the replica did not answer in time") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise ReplicaFailed("connection", f"{type(error).__name__}: {error}") from error
        if response.status != 200:
            _raise_for(response.status, answer)
        return answer

    def _note(self, replica: ReplicaStatus, failure: ReplicaFailed) -> None:
        metrics.REPLICA_FAILURES.labels(replica.id, failure.kind).inc()
        if self._replicas.failed(replica):
            log.warning("replica_failed", replica=replica.id, kind=failure.kind, error=str(failure))


def _raise_for(status: int, body: bytes) -> None:
    """Raise what an answer other than 200 means.

    404: the replica does not serve the version, perhaps because it restarted. 401 and 403 are between it and us.
    """
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
