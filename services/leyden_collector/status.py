"""Errors as OTLP wants them: a protobuf `google.rpc.Status` for protobuf senders, problem details for others."""

from aiohttp import web
from google.rpc.status_pb2 import Status

from leyden_collector import metrics
from leyden_contracts import Problem
from leyden_runtime.web import problem_response

PROTOBUF = "application/x-protobuf"
RETRYABLE = frozenset({429, 503})
_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    408: "Too slow",
    413: "Too large",
    415: "Unsupported media type",
    429: "Too many requests",
    503: "Not stored",
}
_CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 3, 415: 3, 429: 8, 503: 14}
"""HTTP status -> google.rpc.Code."""


def error_response(request: web.Request, status: int, detail: str, retry_after_s: int) -> web.Response:
    """Return the answer to a refused request; with Retry-After where sending again may help."""
    metrics.REQUESTS_REFUSED.labels(status=str(status)).inc()
    if request.content_type == PROTOBUF:
        body = Status(code=_CODES[status], message=detail).SerializeToString()
        response = web.Response(status=status, body=body, content_type=PROTOBUF)
    else:
        response = problem_response(Problem(title=_TITLES[status], status=status, detail=detail))
    if status in RETRYABLE:
        response.headers["Retry-After"] = str(retry_after_s)
    return response
