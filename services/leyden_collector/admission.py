"""Which spans of a request are kept, for which run, and why the others are not. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import TypeAdapter, ValidationError

from leyden_contracts import RunId, Transition
from leyden_runtime.tokens import Claims, Scope
from leyden_traces import MalformedSpan, decode_call, is_call, names, text

_RUN_ID = TypeAdapter(RunId)
_IDENTITY = (names.RUN, names.EPISODE, names.ATTEMPT)


class Refusal(Exception):
    """One span is not kept."""

    def __init__(self, kind: str, detail: str, run: str | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        """`malformed`, `no_run`, `forged` or `foreign`: a metric's label."""
        self.detail = detail
        self.run = run
        """Whose quarantine it goes to; None if nobody can tell."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A span that was not kept."""

    kind: str
    detail: str
    span: bytes
    """Serialized."""


@dataclass(slots=True)
class Share:
    """One run's part of one request."""

    run: str | None
    """None: spans that say no run; all of them are refused."""
    kept: int = 0
    otlp: bytes = b""
    """The kept spans as a serialized ExportTraceServiceRequest; concatenating several gives one again."""
    calls: list[Transition] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that this share holds."""
        return len(self.otlp) + sum(len(refused.span) for refused in self.refused)


def admit(request: ExportTraceServiceRequest, body: bytes, claims: Claims) -> list[Share]:
    """Return what is kept and refused of `request`, by run.

    Args:
        request: the parsed `body`; an attempt's spans are stamped with their identity where they say none.
        body: stored as it is where all of it is kept for one run.
        claims: of the sender's token.
    """
    shares: dict[str | None, Share] = {}
    runs: list[str | None] = []
    for span, resource in _spans(request):
        run, call, refusal = _judge(span, resource, claims)
        share = shares.get(run) or shares.setdefault(run, Share(run))
        if refusal:
            share.refused.append(Refused(refusal.kind, refusal.detail, span.SerializeToString()))
            runs.append(None)
            continue
        share.kept += 1
        runs.append(run)
        if call:
            share.calls.append(call)
    if len(shares) == 1 and None not in runs:
        share.otlp = body if claims.scope is Scope.SPANS else request.SerializeToString()
    else:
        for run, part in _split(request, runs).items():
            shares[run].otlp = part.SerializeToString()
    return list(shares.values())


def _spans(request: ExportTraceServiceRequest) -> Iterator[tuple[Span, dict[str, AnyValue]]]:
    for group in request.resource_spans:
        resource = _identity(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield span, resource


def _judge(
    span: Span, resource: dict[str, AnyValue], claims: Claims
) -> tuple[str | None, Transition | None, Refusal | None]:
    try:
        if len(span.trace_id) != 16 or len(span.span_id) != 8:
            raise Refusal("malformed", "a span's trace id must have 16 bytes and its span id 8", claims.run)
        if claims.scope is Scope.ATTEMPT:
            return _attempt_span(span, resource, claims), None, None
        if is_call(span):
            call = _call(span)
            return call.run, call, None
        return _run(span, resource), None, None
    except Refusal as refusal:
        return refusal.run, None, refusal


def _attempt_span(span: Span, resource: dict[str, AnyValue], claims: Claims) -> str:
    """Check an agent's own span against its token, and stamp what the span does not say."""
    if is_call(span):
        detail = f"only the gateway records calls: an attempt's own span must not carry {names.CALL}"
        raise Refusal("forged", detail, claims.run)
    said = _identity(span.attributes)
    for key, value in zip(_IDENTITY, (claims.run, claims.episode, claims.attempt), strict=True):
        for source in (said, resource):
            if key in source and _plain(source[key]) != str(value):
                raise Refusal("foreign", f"{key} is not the one of this token", claims.run)
        if key not in said and key not in resource:
            span.attributes.append(_attribute(key, value))
    return str(claims.run)


def _call(span: Span) -> Transition:
    try:
        return decode_call(span)
    except MalformedSpan as error:
        run = _plain(_identity(span.attributes).get(names.RUN))
        raise Refusal("malformed", error.reason, run if _is_run(run) else None) from error


def _run(span: Span, resource: dict[str, AnyValue]) -> str:
    said = _identity(span.attributes)
    run = _plain(said.get(names.RUN, resource.get(names.RUN)))
    if not _is_run(run):
        raise Refusal("no_run", f"{names.RUN} is missing, or is no run's id")
    return run


@lru_cache(maxsize=1024)
def _is_run(run: str) -> bool:
    try:
        _RUN_ID.validate_python(run)
    except ValidationError:
        return False
    return True


def _identity(attributes: Iterable[KeyValue]) -> dict[str, AnyValue]:
    return {attribute.key: attribute.value for attribute in attributes if attribute.key in _IDENTITY}


def _plain(value: AnyValue | None) -> str:
    """Return an identity as text; numbers that came through an environment variable are text already."""
    if value is None:
        return ""
    return str(getattr(value, value.WhichOneof("value") or "string_value"))


def _attribute(key: str, value: str | int | None) -> KeyValue:
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return text(key, str(value))


def _split(request: ExportTraceServiceRequest, runs: list[str | None]) -> dict[str, ExportTraceServiceRequest]:
    """Return one request for each run; `runs` says whose each span is, None for a refused one."""
    parts: dict[str, ExportTraceServiceRequest] = defaultdict(ExportTraceServiceRequest)
    owners = iter(runs)
    for group in request.resource_spans:
        for scope in group.scope_spans:
            kept: dict[str, list[Span]] = defaultdict(list)
            for span, owner in zip(scope.spans, owners, strict=False):
                if owner:
                    kept[owner].append(span)
            for run, spans in kept.items():
                part = parts[run].resource_spans.add(resource=group.resource, schema_url=group.schema_url)
                part.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=spans)
    return parts
