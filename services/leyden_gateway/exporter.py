"""Spans on their way to the collector: batched, repeated until stored, bounded, and never dropped.

A call takes its place in the queue before it is forwarded. When there is none, the call is refused; so a span that
has been counted always has room.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Iterator

import aiohttp
import structlog
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_gateway import metrics
from leyden_gateway.errors import ApiError
from leyden_gateway.settings import GatewaySettings
from leyden_runtime.tokens import Scope, Tokens
from leyden_traces import names, text

log = structlog.get_logger()
_TOKEN_S = 600
_BACK_OFF_S = (0.05, 5.0)
_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
_TOO_LARGE_OR_BAD = (400, 413, 422)


class Place:
    """Room for the spans of one request."""

    def __init__(self, exporter: "Exporter") -> None:
        self._exporter = exporter

    def put(self, span: Span) -> None:
        """Hand over a span."""
        self._exporter._put(span)


class Exporter:
    """The queue and the task that empties it. Start it with `run`."""

    def __init__(self, session: aiohttp.ClientSession, settings: GatewaySettings, tokens: Tokens) -> None:
        self._session = session
        self._settings = settings
        self._tokens = tokens
        self._url = f"{settings.collector_url.rstrip('/')}/v1/traces"
        self._token, self._token_until = "", 0.0
        self._spans: deque[Span] = deque()
        self._bytes = 0
        self._promised = 0
        self._unsent = 0
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        metrics.QUEUE.set_function(lambda: self.pending)

    @property
    def pending(self) -> int:
        """Spans that the collector has not confirmed."""
        return len(self._spans) + self._unsent

    @contextlib.contextmanager
    def place(self, spans: int = 1) -> Iterator[Place]:
        """Keep room for some spans while a call is under way. Raises ApiError (503) if there is none."""
        full = self.pending + self._promised + spans > self._settings.span_queue
        if full or self._bytes >= self._settings.span_queue_bytes:
            raise ApiError(503, "spans_backlog", "the collector is behind; try again", retry=True)
        self._promised += spans
        try:
            yield Place(self)
        finally:
            self._promised -= spans

    async def run(self) -> None:
        """Send what arrives, for ever."""
        while True:
            await self._arrived.wait()
            if len(self._spans) < self._settings.span_batch:
                await asyncio.sleep(self._settings.span_delay_s)
            batch = [self._spans.popleft() for _ in range(min(len(self._spans), self._settings.span_batch))]
            if not self._spans:
                self._arrived.clear()
            self._unsent = len(batch)
            await self._send(batch)

    async def flush(self, timeout_s: float) -> int:
        """Wait until the collector has everything, or `timeout_s`; return how many spans it still lacks."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        return self.pending

    def _put(self, span: Span) -> None:
        self._spans.append(span)
        self._bytes += span.ByteSize()
        self._idle.clear()
        self._arrived.set()

    async def _send(self, batch: list[Span]) -> None:
        """Send `batch` until it is stored. What the collector refuses as bad is halved, to save its neighbours."""
        pause = _BACK_OFF_S[0]
        while True:
            status = await self._post(_request(batch))
            if status == 200:
                return self._done(batch, "exported")
            if status in _TOO_LARGE_OR_BAD:
                return await self._send_halves(batch)
            metrics.EXPORT_RETRIES.inc()
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _BACK_OFF_S[1])

    async def _send_halves(self, batch: list[Span]) -> None:
        if len(batch) == 1:
            log.error("span_refused", name=batch[0].name, bytes=batch[0].ByteSize())
            return self._done(batch, "failed")
        middle = len(batch) // 2
        await self._send(batch[:middle])
        await self._send(batch[middle:])

    async def _post(self, body: bytes) -> int:
        """Return the status of the collector's answer; 0 if there was none."""
        headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {self._bearer()}"}
        try:
            async with self._session.post(self._url, data=body, headers=headers, timeout=_TIMEOUT) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("collector_unreachable", url=self._url, error=repr(error))
            return 0
        if response.status != 200:
            log.warning("collector_refused", status=response.status, answer=answer[:300].decode(errors="replace"))
            return response.status
        _note_rejected(answer)
        return 200

    def _done(self, batch: list[Span], outcome: str) -> None:
        self._unsent -= len(batch)
        self._bytes -= sum(span.ByteSize() for span in batch)
        metrics.SPANS.labels(outcome).inc(len(batch))
        if not self.pending:
            self._idle.set()

    def _bearer(self) -> str:
        if time.monotonic() > self._token_until:
            self._token = self._tokens.mint(Scope.SPANS, _TOKEN_S)
            self._token_until = time.monotonic() + _TOKEN_S / 2
        return self._token


def _request(batch: list[Span]) -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.append(text(names.SERVICE_NAME, "leyden-gateway"))
    resource_spans.scope_spans.add().spans.extend(batch)
    return request.SerializeToString()


def _note_rejected(answer: bytes) -> None:
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return
    if partial.rejected_spans:
        metrics.SPANS.labels("rejected").inc(partial.rejected_spans)
        log.error("spans_rejected", count=partial.rejected_spans, reason=partial.error_message)
