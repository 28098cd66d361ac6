"""Errors in the shape that vLLM and OpenAI's clients use."""

import json
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    413: "RequestTooLargeError",
    503: "ServiceUnavailableError",
}


class EngineError(Exception):
    """An answer other than success.

    Args:
        status: of the HTTP answer.
        message: for people: what to change.
        param: the request's field that is to blame.
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param


def response(error: EngineError) -> web.Response:
    """Return `error` as `{"error": {"message", "type", "param", "code"}}`."""
    kind = _KINDS.get(error.status, "InternalServerError" if error.status >= 500 else "BadRequestError")
    body = {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.status}}
    headers = {"Retry-After": "1"} if error.status == 503 else {}
    return web.Response(status=error.status, text=json.dumps(body), content_type="application/json", headers=headers)


@web.middleware
async def openai_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as OpenAI does."""
    try:
        return await handler(request)
    except EngineError as error:
        return response(error)
    except web.HTTPException as error:
        return response(EngineError(error.status, error.text or error.reason))
    except Exception as error:
        log.exception("request_failed", path=request.path)
        return response(EngineError(500, f"{type(error).__name__}: see the engine's log"))
