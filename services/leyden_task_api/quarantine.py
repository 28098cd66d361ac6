"""Reading what the collector has put into quarantine: JSON lines of `kind`, `reason` and `span` (OTLP, base64)."""

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts.api import QuarantinedSpan
from leyden_storage import ObjectStore
from leyden_storage.keys import quarantine_prefix

_TEXT = 500
"""Characters that are shown of a value."""
_ITEMS = 64
"""Elements that are shown of a list."""
_COUNT_FOR_S = 5.0
_IDS = ("traceId", "spanId", "parentSpanId")


def refused_spans(store: ObjectStore, run: str, after: str, count: int) -> tuple[list[QuarantinedSpan], str | None]:
    """Return `count` spans after the place `after` (empty: from the first on), and the place of the last one.

    That is None at the end. Raises StoreError.
    """
    lines = list(islice(_lines(store, run, after), count + 1))
    shown = [_span(line) for _, line in lines[:count]]
    return shown, lines[count - 1][0] if len(lines) > count else None


def count_refused(store: ObjectStore, run: str) -> tuple[dict[str, int], bool]:
    """Return kind -> refused spans, and whether all of them were counted. Raises StoreError."""
    counts: Counter[str] = Counter()
    until = time.monotonic() + _COUNT_FOR_S
    for _, line in _lines(store, run, ""):
        counts[str(line.get("kind", "unknown"))] += 1
        if time.monotonic() > until:
            return dict(sorted(counts.items())), False
    return dict(sorted(counts.items())), True


def _lines(store: ObjectStore, run: str, after: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, line)."""
    prefix = quarantine_prefix(run)
    last, _, number = after.partition(":")
    for key in store.list(prefix):
        name = key.removeprefix(prefix)
        if name < last:
            continue
        first = int(number) + 1 if name == last else 0
        for place, line in enumerate(store.get(key).splitlines()[first:], start=first):
            yield f"{name}:{place}", _parsed(line)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"kind": "unknown", "reason": "this line cannot be read"}


def _span(line: dict[str, Any]) -> QuarantinedSpan:
    raw = _bytes(line.get("span"))
    try:
        span = Span.FromString(raw)
    except DecodeError:
        span = Span()
    known = span.ByteSize() > 0
    return QuarantinedSpan(
        kind=str(line.get("kind", "unknown")),
        reason=str(line.get("reason", "")),
        ended=span.end_time_unix_nano / 1e9 if span.end_time_unix_nano else None,
        span=_json(span) if known else None,
        bytes=len(raw),
    )


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (ValueError, TypeError):
        return b""


def _json(span: Span) -> dict[str, Any]:
    """Return OTLP's own JSON: ids are hex there, other than in protobuf's."""
    shown: dict[str, Any] = MessageToDict(span)
    for name in _IDS:
        if name in shown:
            shown[name] = base64.b64decode(shown[name]).hex()
    return {name: _cut(value) for name, value in shown.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _TEXT:
        return f"{value[:_TEXT]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [_cut(one) for one in value[:_ITEMS]]
    if isinstance(value, dict):
        return {name: _cut(one) for name, one in value.items()}
    return value
