"""Recently written or read segments, decoded: normally assembly reads nothing from the object store."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from leyden_contracts import Transition

CallId = tuple[str, int, int]
"""Episode, attempt, call number."""
Calls = dict[CallId, list[Transition]]
"""More than one transition under an id: different spans claim to be the same call."""


@dataclass(frozen=True, slots=True)
class _Entry:
    calls: Calls
    size: int


class SegmentCache:
    """Decoded segments by key, the least recently used dropped beyond `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.size = 0

    def put(self, key: str, calls: Calls, size: int) -> None:
        """Keep `calls`, whose segment has `size` bytes."""
        self._drop(key)
        if size > self._limit:
            return
        self._entries[key] = _Entry(calls, size)
        self.size += size
        while self.size > self._limit:
            self._drop(next(iter(self._entries)))

    def get(self, key: str) -> Calls | None:
        """Return the calls of the segment, or None if it has to be read."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.calls

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry:
            self.size -= entry.size


def index(transitions: Iterable[Transition]) -> Calls:
    """Return the calls by id; a call that was sent twice is there once."""
    calls: Calls = {}
    for transition in transitions:
        same = calls.setdefault((transition.episode, transition.attempt, transition.number), [])
        if transition not in same:
            same.append(transition)
    return calls
