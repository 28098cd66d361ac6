"""Puts the gateway together and serves it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import aiohttp
import structlog
from aiohttp import web

from leyden_gateway.aliases import Aliases
from leyden_gateway.callers import Callers
from leyden_gateway.calls import Calls
from leyden_gateway.counting import Counting
from leyden_gateway.dialects import DIALECTS, own_words
from leyden_gateway.exporter import Exporter
from leyden_gateway.limits import Limits
from leyden_gateway.models import Models
from leyden_gateway.outside import Providers
from leyden_gateway.permits import Permits
from leyden_gateway.plan import Planner
from leyden_gateway.protocols.ollama_models import UNSUPPORTED
from leyden_gateway.recording import Recorder
from leyden_gateway.replicas import Replicas
from leyden_gateway.roles import RunCache
from leyden_gateway.settings import GatewaySettings
from leyden_gateway.upstream import Upstream
from leyden_gateway.versions import Versions
from leyden_ledger import Ledger
from leyden_runtime.settings import secret
from leyden_runtime.tokens import Tokens
from leyden_runtime.web import make_app

log = structlog.get_logger()


async def serve(settings: GatewaySettings, tokens: Tokens, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; then finish the calls in flight and hand over every span."""
    async with _running(settings, tokens, stop) as app:
        # Cancellation on disconnect: an agent that has gone must not keep a replica busy.
        runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=settings.drain_s,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
            log.info("listening", host=settings.host, port=settings.port)
            await stop.wait()
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def _running(settings: GatewaySettings, tokens: Tokens, stop: asyncio.Event) -> AsyncIterator[web.Application]:
    """Yield the application with its connections open; afterwards flush the spans and close them."""
    ledger = Ledger.connect(settings.redis_url)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    exporter = Exporter(session, settings, tokens)
    sending = asyncio.create_task(exporter.run())
    sending.add_done_callback(lambda _: stop.set())
    runs, replicas = RunCache(ledger), Replicas(ledger, settings.replica_refresh_s)
    callers, permits = Callers(tokens), Permits(ledger)
    planner = Planner(permits, runs, Versions(ledger, permits, replicas), settings.replica_wait_s)
    upstream = Upstream(session, replicas, secret(settings.engine_api_key), settings.upstream_timeout_s)
    aliases = Aliases(ledger, runs, settings.replica_wait_s)
    calls = Calls(
        callers,
        planner,
        aliases,
        upstream,
        Providers(session, settings.providers, settings.upstream_timeout_s),
        exporter,
        Recorder(ledger, permits),
        Limits(settings.max_calls, settings.max_calls_of_a_run),
    )
    try:
        counting, models = Counting(callers, planner, aliases, upstream), Models(callers, runs, aliases)
        yield _app(calls, counting, models, settings.max_body_bytes)
    finally:
        lost = await exporter.flush(settings.drain_s)
        if lost:
            log.error("spans_lost", count=lost)
        sending.cancel()
        upstream.close()
        await session.close()
        await ledger.aclose()


def _app(calls: Calls, counting: Counting, models: Models, max_body_bytes: int) -> web.Application:
    app = make_app(max_body_bytes)
    app.middlewares.append(own_words)
    app.add_routes([web.post(path, partial(calls.answer, dialect=dialect)) for path, dialect in DIALECTS.items()])
    app.add_routes([web.get("/v1/models", models.list), web.get("/v1/models/{name:.+}", models.get)])
    app.add_routes([web.post("/v1/messages/count_tokens", counting.answer), web.get("/api/version", models.version)])
    app.add_routes([web.get("/api/tags", models.tags), web.post("/api/show", models.show)])
    app.add_routes([web.route("*", f"/api/{name}", models.unsupported) for name in UNSUPPORTED])
    return app
