"""What every aiohttp service serves: health, metrics, and errors as problem details."""

import asyncio
from collections.abc import Awaitable, Callable

import prometheus_client
import structlog
from aiohttp import web

from leyden_contracts import Problem

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProblemError(Exception):
    """An error to answer with."""

    def __init__(self, status: int, title: str, detail: str, errors: list[str] | None = None) -> None:
        super().__init__(detail)
        self.problem = Problem(title=title, status=status, detail=detail, errors=errors or [])


def problem_response(problem: Problem) -> web.Response:
    """Return `problem` as an HTTP answer."""
    return web.Response(status=problem.status, text=problem.model_dump_json(), content_type="application/problem+json")


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ProblemError as error:
        return problem_response(error.problem)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return problem_response(Problem(title=error.reason, status=error.status, detail=error.text or error.reason))
    except Exception as error:
        log.exception("request_failed", path=request.path)
        detail = f"{type(error).__name__}: see the service's log"
        return problem_response(Problem(title="Internal error", status=500, detail=detail))


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _metrics(_: web.Request) -> web.Response:
    body = prometheus_client.generate_latest()
    return web.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})


def make_app(max_body_bytes: int = 16 * 2**20) -> web.Application:
    """Return an application with /healthz and /metrics, and problem details for every error."""
    app = web.Application(middlewares=[_problems], client_max_size=max_body_bytes)
    app.add_routes([web.get("/healthz", _health), web.get("/metrics", _metrics)])
    return app


async def run_app(app: web.Application, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve `app` until `stop` is set, then finish the requests in flight."""
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=10)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        log.info("listening", host=host, port=port)
        await stop.wait()
    finally:
        await runner.cleanup()


def bearer(request: web.Request) -> str:
    """Return the request's bearer token. Raises ProblemError (401)."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise ProblemError(401, "No token", "send `Authorization: Bearer <token>`")
    return token.strip()
