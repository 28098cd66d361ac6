"""Errors as OTLP wants them: a `google.rpc.Status`, as the sender speaks; problem details for who speaks neither."""

from aiohttp import web
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from leyden_collector import metrics, otlp_json
from leyden_collector.refusal import Refused
from leyden_contracts import Problem
from leyden_runtime.web import problem_response

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
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
CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 3, 415: 3, 429: 8, 503: 14}
"""HTTP status -> google.rpc.Code."""


def status_of(error: Refused, retry_after_s: int) -> Status:
    """Count `error` and return it as a Status; with RetryInfo where sending again may help."""
    metrics.REQUESTS_REFUSED.labels(status=str(error.status)).inc()
    status = Status(code=CODES[error.status], message=error.detail)
    if error.status in RETRYABLE:
        status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=retry_after_s)))
    return status


def error_response(content_type: str, error: Refused, retry_after_s: int) -> web.Response:
    """Return the HTTP answer to a refused request; with Retry-After where sending again may help."""
    status = status_of(error, retry_after_s)
    if content_type == PROTOBUF:
        response = web.Response(status=error.status, body=status.SerializeToString(), content_type=PROTOBUF)
    elif content_type == JSON:
        response = web.Response(status=error.status, body=otlp_json.from_protobuf(status), content_type=JSON)
    else:
        problem = Problem(title=_TITLES[error.status], status=error.status, detail=error.detail)
        response = problem_response(problem)
    if error.status in RETRYABLE:
        response.headers["Retry-After"] = str(retry_after_s)
    return response
