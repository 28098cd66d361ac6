"""From stored segments to transitions, and to what the agents' own spans say."""

import asyncio
from collections.abc import Iterator

import structlog
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector import metrics
from leyden_collector.agents import Agents, bounded, read_agents
from leyden_collector.cache import Segment, SegmentCache, index
from leyden_contracts import Transition
from leyden_ledger import Closed
from leyden_storage import ObjectNotFound, ObjectStore
from leyden_traces import Fact, MalformedSpan, decode_call, is_call

log = structlog.get_logger()
_AT_ONCE = 4096
"""Agents' spans that are held of one attempt before those beyond the bounds are let go."""


class SegmentReader:
    """Finds the spans of closed attempts, in memory if this collector wrote them, else in the object store."""

    def __init__(self, store: ObjectStore, cache: SegmentCache) -> None:
        self._store = store
        self._cache = cache

    async def transitions(self, closed: Closed) -> list[Transition]:
        """Return the attempt's transitions, without those whose segment is lost. Raises StoreError."""
        found: list[Transition] = []
        for key in dict.fromkeys(closed.segments.values()):
            calls = (await self._segment(key)).calls
            numbers = [number for number, segment in closed.segments.items() if segment == key]
            for number in numbers:
                found += calls.get((closed.episode, closed.attempt, number), [])
        return found

    async def facts(self, closed: Closed) -> list[Fact]:
        """Return what the attempt's agent says, within bounds, without what is in lost segments. Raises StoreError."""
        found: list[Fact] = []
        left_out = 0
        for key in closed.agent_segments:
            segment = await self._segment(key)
            if segment.agents is None:
                segment.agents = await asyncio.to_thread(_agents, segment.raw)
                segment.raw = b""
            found += segment.agents.get((closed.episode, closed.attempt), [])
            if len(found) > _AT_ONCE:
                found, more = bounded(found)
                left_out += more
        found, more = bounded(found)
        metrics.LEFT_OUT.inc(left_out + more)
        return found

    async def _segment(self, key: str) -> Segment:
        segment = self._cache.get(key)
        metrics.SEGMENT_READS.labels(source="store" if segment is None else "memory").inc()
        if segment is not None:
            return segment
        try:
            data = await asyncio.to_thread(self._store.get, key)
            segment = await asyncio.to_thread(decode_segment, key, data)
        except (ObjectNotFound, DecodeError) as error:
            log.error("segment_lost", segment=key, error=repr(error))
            return Segment({}, agents={})
        self._cache.put(key, segment, len(data))
        return segment


def decode_segment(key: str, data: bytes) -> Segment:
    """Return what a stored segment holds. Raises google.protobuf.message.DecodeError if it is none."""
    request = ExportTraceServiceRequest.FromString(data)
    return Segment(index(_calls(key, request)), agents=read_agents(request))


def _calls(key: str, request: ExportTraceServiceRequest) -> Iterator[Transition]:
    for span in _spans(request):
        try:
            if is_call(span):
                yield decode_call(span)
        except MalformedSpan as error:
            # Spans are checked before they are stored: this one was stored by a version with other rules.
            log.error("stored_span_malformed", segment=key, reason=error.reason)


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    return (span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans)


def _agents(raw: bytes) -> Agents:
    return read_agents(ExportTraceServiceRequest.FromString(raw)) if raw else {}
