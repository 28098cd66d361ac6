"""What can go wrong, and as which answer it leaves. Each protocol writes the body in its own words."""

import structlog
from aiohttp import web
from redis.exceptions import RedisError

from leyden_ledger import EpisodeNotFound, Fenced, LedgerError, RunNotFound, TooManyCalls
from leyden_runtime.tokens import TokenForbidden, TokenInvalid
from leyden_runtime.web import ProblemError

log = structlog.get_logger()
_LEDGER: dict[type[LedgerError], tuple[int, str]] = {
    Fenced: (409, "attempt_fenced"),
    TooManyCalls: (429, "too_many_calls"),
    EpisodeNotFound: (404, "episode_not_found"),
    RunNotFound: (404, "run_not_found"),
}


class ApiError(Exception):
    """An answer other than success.

    Args:
        status: of the HTTP answer.
        code: short and fixed, for programs and metrics.
        message: for people: what to change.
        retry: whether the same request may do better later; None leaves it to the client's own rules.
    """

    def __init__(self, status: int, code: str, message: str, *, retry: bool | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry = status, code, message, retry


def response(error: ApiError, body: bytes) -> web.Response:
    """Return `error` with the body that the client's protocol has for it."""
    headers = {}
    if error.retry is not None:
        headers["x-should-retry"] = str(error.retry).lower()  # OpenAI's and Anthropic's clients obey it.
    if error.status == 503:
        headers["Retry-After"] = "2"
    return web.Response(status=error.status, body=body, content_type="application/json", headers=headers)


def as_api_error(error: Exception) -> ApiError:
    """Return what to answer for `error`."""
    match error:
        case ApiError():
            return error
        case TokenInvalid():
            return ApiError(401, "invalid_api_key", str(error))
        case TokenForbidden():
            return ApiError(403, "insufficient_scope", str(error))
        case LedgerError() if type(error) in _LEDGER:
            status, code = _LEDGER[type(error)]
            return ApiError(status, code, str(error), retry=False)
        case RedisError():
            log.warning("ledger_unavailable", error=repr(error))
            return ApiError(503, "ledger_unavailable", "the ledger cannot be reached; try again", retry=True)
        case ProblemError():
            return ApiError(error.problem.status, "invalid_api_key", error.problem.detail)
        case web.HTTPRequestEntityTooLarge():
            return ApiError(413, "request_too_large", f"the body is too large: {error.text}")
        case web.HTTPException():
            return ApiError(error.status, "not_found" if error.status == 404 else "http_error", error.reason)
    log.error("call_failed", exc_info=error)
    return ApiError(500, "internal_error", f"{type(error).__name__}: see the gateway's log")
