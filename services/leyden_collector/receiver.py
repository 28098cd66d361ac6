"""POST /v1/traces: OTLP over HTTP. Durable, then 200."""

import asyncio
from collections.abc import Sequence

from aiohttp import web
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from leyden_collector import metrics
from leyden_collector.admission import Share, admit
from leyden_collector.body import ENCODINGS, Budget, Refused, read_body
from leyden_collector.segments import NotDurable, SegmentWriter
from leyden_collector.settings import CollectorSettings
from leyden_collector.status import PROTOBUF, error_response
from leyden_runtime.tokens import Claims, Scope, TokenForbidden, TokenInvalid, Tokens
from leyden_runtime.web import ProblemError, bearer

_REASONS_SHOWN = 5


class Receiver:
    """Takes requests, and answers each once its spans are durable."""

    def __init__(self, writer: SegmentWriter, tokens: Tokens, settings: CollectorSettings) -> None:
        self._writer = writer
        self._tokens = tokens
        self._settings = settings
        self._budget = Budget(settings.max_inflight_bytes)

    def routes(self) -> list[web.RouteDef]:
        """Return what this serves."""
        return [web.post("/v1/traces", self.traces)]

    async def traces(self, request: web.Request) -> web.Response:
        """Answer one export request."""
        try:
            return await self._export(request)
        except Refused as error:
            status, detail = error.status, error.detail
        except ProblemError as error:
            status, detail = error.problem.status, error.problem.detail
        except NotDurable as error:
            status, detail = 503, str(error)
        return error_response(request, status, detail, self._settings.retry_after_s)

    async def _export(self, request: web.Request) -> web.Response:
        claims = self._claims(request)
        _check_headers(request)
        settings = self._settings
        with self._budget.hold() as hold:
            body = await read_body(request, hold, settings.max_body_bytes, settings.read_timeout_s)
            shares = admit(_parse(body), body, claims)
            outcomes = await asyncio.gather(*map(self._writer.submit, shares), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                # Those of its shares that are stored will be sent again, and collapse.
                raise outcome
        return web.Response(body=_answer(shares).SerializeToString(), content_type=PROTOBUF)

    def _claims(self, request: web.Request) -> Claims:
        try:
            claims = self._tokens.verify(bearer(request), Scope.SPANS, Scope.ATTEMPT)
        except TokenInvalid as error:
            raise Refused(401, str(error)) from error
        except TokenForbidden as error:
            raise Refused(403, str(error)) from error
        whole = claims.run and claims.episode and claims.attempt is not None
        if claims.scope is Scope.ATTEMPT and not whole:
            raise Refused(403, "an attempt's token must name its run, episode and attempt")
        return claims


def _check_headers(request: web.Request) -> None:
    if request.content_type != PROTOBUF:
        raise Refused(
            415,
            f"Content-Type {request.content_type} is not supported; send {PROTOBUF} "
            "(OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf)",
        )
    if request.headers.get("Content-Encoding", "").strip().lower() not in ENCODINGS:
        raise Refused(415, "of Content-Encoding, gzip, deflate and identity are supported")


def _parse(body: bytes) -> ExportTraceServiceRequest:
    try:
        return ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise Refused(400, "the body is no serialized ExportTraceServiceRequest") from error


def _answer(shares: Sequence[Share]) -> ExportTraceServiceResponse:
    metrics.SPANS_ACCEPTED.inc(sum(share.kept for share in shares))
    refused = [one for share in shares for one in share.refused]
    if not refused:
        return ExportTraceServiceResponse()
    for one in refused:
        metrics.SPANS_REFUSED.labels(reason=one.kind).inc()
    reasons = list(dict.fromkeys(one.detail[:200] for one in refused))
    more = f"; and {len(reasons) - _REASONS_SHOWN} more reasons" if len(reasons) > _REASONS_SHOWN else ""
    return ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(
            rejected_spans=len(refused), error_message="; ".join(reasons[:_REASONS_SHOWN]) + more
        )
    )
