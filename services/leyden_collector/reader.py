"""From stored segments to transitions."""

import asyncio

import structlog
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from leyden_collector.cache import Calls, SegmentCache, index
from leyden_collector.metrics import SEGMENT_READS
from leyden_contracts import Transition
from leyden_ledger import Closed
from leyden_storage import ObjectNotFound, ObjectStore
from leyden_traces import MalformedSpan, decode_call, is_call

log = structlog.get_logger()


class SegmentReader:
    """Finds the calls of closed attempts, in memory if this collector wrote them, else in the object store."""

    def __init__(self, store: ObjectStore, cache: SegmentCache) -> None:
        self._store = store
        self._cache = cache

    async def transitions(self, closed: Closed) -> list[Transition]:
        """Return the attempt's transitions, without those whose segment is lost. Raises StoreError."""
        found: list[Transition] = []
        for key in dict.fromkeys(closed.segments.values()):
            calls = await self._calls(key)
            numbers = [number for number, segment in closed.segments.items() if segment == key]
            for number in numbers:
                found += calls.get((closed.episode, closed.attempt, number), [])
        return found

    async def _calls(self, key: str) -> Calls:
        calls = self._cache.get(key)
        SEGMENT_READS.labels(source="store" if calls is None else "memory").inc()
        if calls is not None:
            return calls
        try:
            data = await asyncio.to_thread(self._store.get, key)
            calls = index(decode_segment(key, data))
        except (ObjectNotFound, DecodeError) as error:
            log.error("segment_lost", segment=key, error=repr(error))
            return {}
        self._cache.put(key, calls, len(data))
        return calls


def decode_segment(key: str, data: bytes) -> list[Transition]:
    """Return the calls of a stored segment. Raises google.protobuf.message.DecodeError if it is none."""
    request = ExportTraceServiceRequest.FromString(data)
    spans = (span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans)
    calls = []
    for span in spans:
        try:
            if is_call(span):
                calls.append(decode_call(span))
        except MalformedSpan as error:
            # Spans are checked before they are stored: this one was stored by a version with other rules.
            log.error("stored_span_malformed", segment=key, reason=error.reason)
    return calls
