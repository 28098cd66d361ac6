"""Puts the gateway together and serves it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import structlog
from aiohttp import web

from leyden_gateway.calls import Calls, attempt_of
from leyden_gateway.errors import openai_errors
from leyden_gateway.exporter import Exporter
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


class Models:
    """Handles GET /v1/models: the names that the token's run knows."""

    def __init__(self, tokens: Tokens, runs: RunCache) -> None:
        self._tokens = tokens
        self._runs = runs

    async def list(self, request: web.Request) -> web.Response:
        """List the model names."""
        run = str(attempt_of(request, self._tokens).run)
        names = sorted((await self._runs.get(run)).by_model)
        return _json({"object": "list", "data": [_model(name, run) for name in names]})

    async def get(self, request: web.Request) -> web.Response:
        """Return one model, if the run has it."""
        run = str(attempt_of(request, self._tokens).run)
        name = request.match_info["name"]
        (await self._runs.get(run)).role(name)
        return _json(_model(name, run))


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
    upstream = Upstream(session, replicas, secret(settings.engine_api_key), settings.upstream_timeout_s)
    versions = Versions(ledger, replicas)
    calls = Calls(tokens, ledger, runs, versions, upstream, exporter, settings.replica_wait_s)
    try:
        yield _app(calls, Models(tokens, runs), settings.max_body_bytes)
    finally:
        lost = await exporter.flush(settings.drain_s)
        if lost:
            log.error("spans_lost", count=lost)
        sending.cancel()
        await session.close()
        await ledger.aclose()


def _app(calls: Calls, models: Models, max_body_bytes: int) -> web.Application:
    app = make_app(max_body_bytes)
    app.middlewares.append(openai_errors)
    app.add_routes(
        [
            web.post("/v1/chat/completions", calls.chat),
            web.get("/v1/models", models.list),
            web.get("/v1/models/{name:.+}", models.get),
        ]
    )
    return app


def _model(name: str, run: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": run}


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
