"""Recently written or read segments, decoded: normally assembly reads nothing from the object store."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from leyden_collector.agents import Agents
from leyden_contracts import Transition

CallId = tuple[str, int, int]
"""Episode, attempt, call number."""
Calls = dict[CallId, list[Transition]]
"""More than one transition under an id: different spans claim to be the same call."""


@dataclass(slots=True)
class Segment:
    """What a stored segment holds."""

    calls: Calls
    raw: bytes = b""
    """The segment itself, while it holds agents' own spans that nobody has asked for yet."""
    agents: Agents | None = None
    """Those spans; None if nobody has asked."""


@dataclass(frozen=True, slots=True)
class _Entry:
    segment: Segment
    size: int


class SegmentCache:
    """Decoded segments by key, the least recently used dropped beyond `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.size = 0

    def put(self, key: str, segment: Segment, size: int) -> None:
        """Keep `segment`, which takes about `size` bytes."""
        self._drop(key)
        if size > self._limit:
            return
        self._entries[key] = _Entry(segment, size)
        self.size += size
        while self.size > self._limit:
            self._drop(next(iter(self._entries)))

    def get(self, key: str) -> Segment | None:
        """Return the segment, or None if it has to be read."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.segment

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
