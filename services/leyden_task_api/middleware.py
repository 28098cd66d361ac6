"""What happens to every request before and after its route: a token, a size limit, a count."""

import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as RequestScope

from leyden_runtime.tokens import Claims, Scope, TokenForbidden, TokenInvalid, Tokens
from leyden_task_api import telemetry
from leyden_task_api.problems import ProblemError, problem_response
from leyden_task_api.settings import TaskApiSettings

OPEN_PATHS = frozenset({"/healthz", "/metrics", "/openapi.json", "/docs"})


class Authorise:
    """Lets only API tokens through. Outside the router, so that nothing of a stranger's body is read."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403, or pass the request on."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            return await self._app(scope, receive, send)
        try:
            scope["claims"] = self._check(scope)
        except TokenInvalid as error:
            refusal = problem_response(401, str(error), headers={"WWW-Authenticate": "Bearer"})
        except TokenForbidden as error:
            refusal = problem_response(403, str(error))
        else:
            return await self._app(scope, receive, send)
        await refusal(scope, receive, send)

    def _check(self, scope: RequestScope) -> Claims:
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise TokenInvalid("send `Authorization: Bearer <token>`; `leyden token` makes one")
        claims = self._tokens.verify(token.strip(), Scope.API)
        if claims.run is not None and scope["path"].split("/")[1:4] != ["v1", "runs", claims.run]:
            raise TokenForbidden(f"this token is for run {claims.run!r} only")
        return claims


class LimitBody:
    """Refuses bodies that are too large, by their announced length or, without one, when the limit is passed."""

    def __init__(self, app: ASGIApp, settings: TaskApiSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Answer 413 at once, or pass the request on with a `receive` that counts."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        limit = self._limit(headers.get("content-type", ""))
        too_large = ProblemError(
            413,
            f"a body of this kind may have {limit} bytes; split it, or upload tasks as application/x-ndjson, "
            f"which may have {self._settings.max_upload_bytes}",
        )
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            refusal = problem_response(413, str(too_large.detail), headers={"Connection": "close"})
            return await refusal(scope, receive, send)
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise too_large
            return message

        await self._app(scope, counted, send)

    def _limit(self, content_type: str) -> int:
        if "json" in content_type and "ndjson" not in content_type and "jsonl" not in content_type:
            return self._settings.max_json_bytes
        return self._settings.max_upload_bytes


class Count:
    """Counts requests and their seconds by route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Pass the request on and note how it went."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, started = 500, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # At the start of the answer: a stream of events lasts as long as its reader likes.
                telemetry.SECONDS.labels(_route(scope)).observe(time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            telemetry.REQUESTS.labels(scope["method"], _route(scope), status).inc()


def _route(scope: RequestScope) -> str:
    # The path itself would make a series for every run and episode.
    return getattr(scope.get("route"), "path", "unmatched")
