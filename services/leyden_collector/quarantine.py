"""Quarantine: refused spans, kept for people with the reason, out of the way of everything else.

A sender cannot fill the store with rubbish: of each run only so many bytes a minute are kept, and what is
beyond is counted.
"""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterable

from leyden_collector import metrics
from leyden_collector.refusal import RefusedSpan
from leyden_storage import ObjectStore, StoreError
from leyden_storage.keys import quarantine_key

_WINDOW_S = 60.0
_RUNS = 1024
"""So many runs' windows are kept before those that have ended are thrown away."""


class Quarantine:
    """Writes refused spans; its methods may be called in threads."""

    def __init__(self, store: ObjectStore, bytes_a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._limit = bytes_a_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[str | None, tuple[float, int]] = {}

    def write(self, run: str | None, name: str, refused: Iterable[RefusedSpan]) -> None:
        """Store what there is room for as one object. Raises StoreError."""
        kept, lines = [], []
        for one in refused:
            line = encode(one)
            if self._take(run, len(line)):
                kept.append(one)
                lines.append(line)
            else:
                metrics.QUARANTINE_DROPPED.labels(kind=one.kind).inc()
        if not lines:
            return
        if not self._store.create(key(run, name), b"".join(lines)):
            raise StoreError(f"{key(run, name)} is taken, though its name is random")
        for one in kept:
            metrics.QUARANTINED.labels(kind=one.kind).inc()

    def _take(self, run: str | None, size: int) -> bool:
        with self._lock:
            now = self._clock()
            began, used = self._windows.get(run, (now, 0))
            if now - began >= _WINDOW_S:
                began, used = now, 0
            if used + size > self._limit:
                return False
            self._windows[run] = began, used + size
            if len(self._windows) > _RUNS:
                self._windows = {one: it for one, it in self._windows.items() if now - it[0] < _WINDOW_S}
            return True


def key(run: str | None, name: str) -> str:
    """Return the key of one quarantine object; spans of no known run have a folder of their own."""
    return quarantine_key(run, f"{name}.jsonl") if run else f"quarantine/{name}.jsonl"


def encode(refused: RefusedSpan) -> bytes:
    """Return a JSON line: `kind`, `reason`, `bytes` of the whole span, and `span` (OTLP protobuf, cut, base64)."""
    line = {
        "kind": refused.kind,
        "reason": refused.detail,
        "bytes": refused.size,
        "span": base64.b64encode(refused.span).decode(),
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"
