"""TraceService/Export: OTLP over gRPC. Durable, then OK.

A method that takes one message is served as one that takes a stream: on the wire they are the same, but the token is
looked at before the message is taken in, and only so many messages arrive at a time. gRPC bounds each while it
decompresses it.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog

from leyden_collector.budget import Budget, Hold
from leyden_collector.export import Export
from leyden_collector.refusal import Refused
from leyden_collector.settings import CollectorSettings
from leyden_collector.status import status_of

log = structlog.get_logger()
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_DETAILS = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcReceiver(grpc.GenericRpcHandler):
    """Takes requests over gRPC."""

    def __init__(self, export: Export, budget: Budget, settings: CollectorSettings) -> None:
        self._export = export
        self._budget = budget
        self._settings = settings
        self._readers = asyncio.Semaphore(settings.grpc_readers)
        # No (de)serializer: bytes in, bytes out.
        self._handler = grpc.stream_unary_rpc_method_handler(self.traces)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return what serves a call; None for a method that there is not."""
        return self._handler if details.method == METHOD else None

    async def traces(self, _: Any, context: grpc.aio.ServicerContext) -> bytes:
        """Answer one export request."""
        try:
            claims = self._export.claims(_authorization(context))
            with self._budget.hold() as hold:
                body = await self._read(context, hold)
                answer = await self._export.answer(body, claims)
            return answer.SerializeToString()
        except Refused as error:
            status = status_of(error, self._settings.retry_after_s)
            if status.details:
                context.set_trailing_metadata(((_DETAILS, status.SerializeToString()),))
            return await context.abort(_CODES[status.code], status.message)

    async def _read(self, context: grpc.aio.ServicerContext, hold: Hold) -> bytes:
        seconds = self._settings.read_timeout_s
        async with self._turn():
            try:
                body = await asyncio.wait_for(context.read(), seconds)
            except TimeoutError as error:
                raise Refused(408, f"the message did not arrive within {math.ceil(seconds)} s") from error
        if body is grpc.aio.EOF:
            # Also where it was too large, or could not be decompressed: gRPC has answered the sender by itself.
            raise Refused(400, "there is no message")
        hold.take(len(body))
        return body

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until a message may arrive; what waits is held back at its sender by gRPC's flow control."""
        try:
            await asyncio.wait_for(self._readers.acquire(), self._settings.read_timeout_s)
        except TimeoutError as error:
            raise Refused(429, "too many requests are arriving; send again later") from error
        try:
            yield
        finally:
            self._readers.release()


def _authorization(context: grpc.aio.ServicerContext) -> str:
    found = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    return found[0] if found and isinstance(found[0], str) else ""


async def start_grpc(receiver: GrpcReceiver, settings: CollectorSettings) -> grpc.aio.Server:
    """Listen. Raises OSError if the port is taken."""
    options = [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        # Otherwise two processes share a port unasked, and each gets some of the other's spans.
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((receiver,))
    address = f"{settings.host}:{settings.grpc_port}"
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    await server.start()
    log.info("listening", host=settings.host, grpc_port=settings.grpc_port)
    return server
