"""Which spans of a request are kept, for which run, and why the others are not. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector import wire
from leyden_collector.identity import Identity, by_key, is_run, said_by, stamps
from leyden_collector.limits import SpanLimits, check_head, check_parsed, check_serialized
from leyden_collector.plain_calls import plain_calls
from leyden_collector.refusal import Refusal, RefusedSpan
from leyden_collector.wire import Group, Scope
from leyden_contracts import Transition
from leyden_runtime.tokens import Claims
from leyden_runtime.tokens import Scope as TokenScope
from leyden_traces import MalformedSpan, decode_call, names

_AT_ONCE = 64
"""Spans that are read together."""


@dataclass(slots=True)
class Share:
    """One run's part of one request."""

    run: str | None
    """None: spans that say no run; all of them are refused."""
    kept: int = 0
    otlp: bytes = b""
    """The kept spans as a serialized ExportTraceServiceRequest; concatenating several gives one again."""
    calls: list[Transition] = field(default_factory=list)
    agents: set[tuple[str, int]] = field(default_factory=set)
    """Episode and attempt of kept spans that are no calls: an agent's own."""
    refused: list[RefusedSpan] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that this share holds."""
        return len(self.otlp) + sum(len(refused.span) for refused in self.refused)


class _Kept(NamedTuple):
    run: str
    span: bytes
    call: Transition | None = None
    agent: tuple[str, int] | None = None


def admit(body: bytes, claims: Claims, limits: SpanLimits, *, most: int, shown: int) -> list[Share]:
    """Return what is kept and refused of a serialized request, by run.

    Args:
        body: stored as it is where all of it is kept for one run. An attempt's spans are stamped with their identity
            where they say none.
        claims: of the sender's token.
        limits: a span beyond them is refused, its neighbours are not.
        most: spans that a request may have.
        shown: how many bytes of a refused span are kept for people.

    Raises:
        NotOtlp: `body` is no request.
        TooMany: it has more than `most` spans.
    """
    admission = _Admission(claims, limits, shown)
    for group in wire.split(body, most):
        admission.group(group)
    return admission.shares(body)


class _Admission:
    """What has been decided of one request so far."""

    def __init__(self, claims: Claims, limits: SpanLimits, shown: int) -> None:
        self._claims = claims
        self._limits = limits
        self._shown = shown
        self._stamps = stamps(claims)
        self._shares: dict[str | None, Share] = {}
        self._kept: dict[str, list[Group]] = {}
        self._changed = False

    def group(self, group: Group) -> None:
        """Decide on all spans under one resource."""
        said = _said(group.head, self._limits)
        mine: dict[str, Group] = {}
        for scope in group.scopes:
            for run, spans in self._scope(scope, said).items():
                mine.setdefault(run, Group(group.head)).scopes.append(Scope(scope.head, spans))
        for run, kept in mine.items():
            self._kept.setdefault(run, []).append(kept)

    def shares(self, body: bytes) -> list[Share]:
        """Return each run's share, with its bytes."""
        if len(self._kept) == 1 and len(self._shares) == 1 and not self._changed:
            # Nothing was refused, stamped, or another run's.
            self._shares[next(iter(self._kept))].otlp = body
        else:
            for run, groups in self._kept.items():
                self._shares[run].otlp = wire.join(groups)
        return list(self._shares.values())

    def _scope(self, scope: Scope, said: Identity | Refusal) -> dict[str, list[bytes]]:
        """Return the kept spans of one scope by run."""
        said = _checked(scope.head, said, self._limits)
        kept: dict[str, list[bytes]] = {}
        for span, plain in self._read(scope.spans):
            try:
                found = self._judge(span, plain, said)
            except Refusal as refusal:
                self._refuse(span, refusal)
                continue
            self._keep(found)
            kept.setdefault(found.run, []).append(found.span)
        return kept

    def _keep(self, found: _Kept) -> None:
        share = self._share(found.run)
        share.kept += 1
        if found.call:
            share.calls.append(found.call)
        if found.agent:
            share.agents.add(found.agent)

    def _refuse(self, span: bytes, refusal: Refusal) -> None:
        self._changed = True
        run = refusal.run or self._claims.run
        self._share(run).refused.append(RefusedSpan(refusal.kind, refusal.detail, span[: self._shown], len(span)))

    def _share(self, run: str | None) -> Share:
        share = self._shares.get(run)
        if share is None:
            share = self._shares[run] = Share(run)
        return share

    def _read(self, spans: Sequence[bytes]) -> Iterator[tuple[bytes, Transition | None]]:
        """Yield each span, and the call that it is if that is plain."""
        for start in range(0, len(spans), _AT_ONCE):
            some = spans[start : start + _AT_ONCE]
            from_gateway = self._claims.scope is TokenScope.SPANS
            yield from zip(some, plain_calls(some, self._limits) if from_gateway else [None] * len(some), strict=True)

    def _judge(self, data: bytes, plain: Transition | None, resource: Identity | Refusal) -> _Kept:
        """Say whose span this is. Raises Refusal."""
        if isinstance(resource, Refusal):
            raise resource
        check_serialized(data, self._limits)
        if plain:
            return _Kept(plain.run, data, call=plain)
        span = _parse(data)
        attributes = by_key(span.attributes)
        check_parsed(span, attributes, len(data), self._limits)
        if len(span.trace_id) != 16 or len(span.span_id) != 8:
            raise Refusal("malformed", "a span's trace id must have 16 bytes and its span id 8")
        if self._claims.scope is TokenScope.ATTEMPT:
            return self._attempt_span(data, attributes, resource)
        if names.CALL in attributes:
            call = _call(span, attributes)
            return _Kept(call.run, data, call=call)
        return _other_span(data, resource.overridden_by(said_by(attributes)))

    def _attempt_span(self, data: bytes, attributes: dict[str, AnyValue], resource: Identity) -> _Kept:
        """Check an agent's own span against its token, and stamp what the span does not say."""
        if names.CALL in attributes:
            detail = f"only the gateway records calls: an attempt's own span must not carry {names.CALL}"
            raise Refusal("forged", detail)
        mine = said_by(attributes)
        claims = self._claims
        for key, stamp in self._stamps.items():
            for said in (mine.get(key), resource.get(key)):
                if said is not None and said != stamp.value:
                    raise Refusal("foreign", f"{key} is not the one of this token")
            if mine.get(key) is None and resource.get(key) is None:
                data += stamp.field
                self._changed = True
        return _Kept(str(claims.run), data, agent=(str(claims.episode), int(claims.attempt or 0)))


def _said(head: bytes, limits: SpanLimits) -> Identity | Refusal:
    """Return what a resource says of its spans, or why they are all refused. Raises NotOtlp."""
    try:
        check_head(head, limits)
        return said_by(by_key(wire.parse_group(head).resource.attributes))
    except Refusal as refusal:
        return refusal


def _checked(head: bytes, said: Identity | Refusal, limits: SpanLimits) -> Identity | Refusal:
    """Return `said`, or why a scope's spans are all refused. Raises NotOtlp."""
    try:
        check_head(head, limits)
    except Refusal as refusal:
        return refusal
    wire.parse_scope(head)
    return said


def _parse(data: bytes) -> Span:
    try:
        return wire.parse_span(data)
    except DecodeError as error:
        raise Refusal("malformed", "the span cannot be parsed") from error


def _call(span: Span, attributes: dict[str, AnyValue]) -> Transition:
    try:
        return decode_call(span, attributes)
    except MalformedSpan as error:
        run = said_by(attributes).run
        raise Refusal(error.kind, error.reason, run if run and is_run(run) else None) from error


def _other_span(data: bytes, said: Identity) -> _Kept:
    if not said.run or not is_run(said.run):
        raise Refusal("no_run", f"{names.RUN} is missing, or is no run's id")
    return _Kept(said.run, data, agent=said.attempt_of())
