"""Both receivers, on one export and one budget, until told to stop."""

import asyncio

import grpc

from leyden_collector.budget import Budget
from leyden_collector.export import Export
from leyden_collector.grpc_receiver import GrpcReceiver, start_grpc
from leyden_collector.receiver import Receiver
from leyden_collector.segments import SegmentWriter
from leyden_collector.settings import CollectorSettings
from leyden_runtime.tokens import Tokens
from leyden_runtime.web import make_app, run_app


async def receive(writer: SegmentWriter, tokens: Tokens, settings: CollectorSettings, stop: asyncio.Event) -> None:
    """Serve OTLP over HTTP and gRPC until `stop` is set, then answer the requests in flight."""
    export = Export(writer, tokens, settings)
    budget = Budget(settings.max_inflight_bytes)
    app = make_app()
    app.add_routes(Receiver(export, budget, settings).routes())
    # First: whoever finds /healthz answering finds gRPC listening.
    draining = None
    if settings.grpc_port:
        server = await start_grpc(GrpcReceiver(export, budget, settings), settings)
        draining = asyncio.create_task(_drain(server, stop, settings.store_timeout_s))
    try:
        await run_app(app, settings.host, settings.port, stop)
    finally:
        stop.set()
        if draining:
            await draining


async def _drain(server: grpc.aio.Server, stop: asyncio.Event, grace_s: float) -> None:
    await stop.wait()
    await server.stop(grace_s)
