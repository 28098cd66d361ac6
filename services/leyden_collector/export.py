"""One export request, however it came: its sender's token and its bytes in, an answer out. HTTP and gRPC share this."""

import asyncio
from collections.abc import Iterable, Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from leyden_collector import metrics
from leyden_collector.admission import Share, admit
from leyden_collector.refusal import KINDS, Refused
from leyden_collector.segments import Fenced, NotDurable, SegmentWriter
from leyden_collector.senders import Senders
from leyden_collector.settings import CollectorSettings
from leyden_collector.wire import NotOtlp, TooMany
from leyden_runtime.tokens import Claims, Scope, TokenForbidden, TokenInvalid, Tokens

_REASONS_SHOWN = 5


class Export:
    """Takes requests, and answers each once its spans are durable."""

    def __init__(self, writer: SegmentWriter, tokens: Tokens, settings: CollectorSettings) -> None:
        self._writer = writer
        self._senders = Senders(tokens)
        self._settings = settings

    def claims(self, authorization: str) -> Claims:
        """Return what an Authorization header says of the sender. Raises Refused (401, 403)."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Refused(401, "send `Authorization: Bearer <token>`")
        try:
            claims = self._senders.claims(token.strip())
        except TokenInvalid as error:
            raise Refused(401, str(error)) from error
        except TokenForbidden as error:
            raise Refused(403, str(error)) from error
        whole = claims.run and claims.episode and claims.attempt is not None
        if claims.scope is Scope.ATTEMPT and not whole:
            raise Refused(403, "an attempt's token must name its run, episode and attempt")
        return claims

    async def answer(self, body: bytes, claims: Claims) -> ExportTraceServiceResponse:
        """Store the spans of a serialized request and say which were refused. Raises Refused."""
        shares = self._admit(body, claims)
        outcomes = await asyncio.gather(*map(self._writer.submit, shares), return_exceptions=True)
        stored: list[tuple[Share, Fenced]] = []
        for share, outcome in zip(shares, outcomes, strict=True):
            if isinstance(outcome, NotDurable):
                # Those of its shares that are stored will be sent again, and collapse.
                raise Refused(503, str(outcome)) from outcome
            if isinstance(outcome, BaseException):
                raise outcome
            stored.append((share, outcome))
        return _answer(stored)

    def _admit(self, body: bytes, claims: Claims) -> Sequence[Share]:
        settings = self._settings
        most = settings.max_spans
        try:
            return admit(body, claims, settings.span_limits, most=most, shown=settings.quarantine_span_bytes)
        except NotOtlp as error:
            raise Refused(400, f"the body is no serialized ExportTraceServiceRequest: {error}") from error
        except TooMany as error:
            raise Refused(413, f"a request may have {most} spans; send fewer at once") from error


def _answer(stored: Sequence[tuple[Share, Fenced]]) -> ExportTraceServiceResponse:
    refused = [(one.kind, one.detail) for share, _ in stored for one in share.refused]
    refused += [one for share, fenced in stored if fenced for one in _late(share, fenced)]
    metrics.SPANS_ACCEPTED.inc(sum(share.kept for share, _ in stored))
    if not refused:
        return ExportTraceServiceResponse()
    for kind, _ in refused:
        metrics.SPANS_REFUSED.labels(reason=kind).inc()
    partial = ExportTracePartialSuccess(rejected_spans=len(refused), error_message=_message(refused))
    return ExportTraceServiceResponse(partial_success=partial)


def _late(share: Share, fenced: Fenced) -> Iterable[tuple[str, str]]:
    """Take back that fenced calls were kept, and yield why: that only shows when they are noted."""
    for call in share.calls:
        if (call.episode, call.attempt) in fenced:
            share.kept -= 1
            yield "fenced", KINDS["fenced"]


def _message(refused: Iterable[tuple[str, str]]) -> str:
    reasons = list(dict.fromkeys(detail[:200] for _, detail in refused))
    more = f"; and {len(reasons) - _REASONS_SHOWN} more reasons" if len(reasons) > _REASONS_SHOWN else ""
    return "; ".join(reasons[:_REASONS_SHOWN]) + more
