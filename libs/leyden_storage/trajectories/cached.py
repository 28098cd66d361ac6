"""Recently read batches, decoded: the episodes of a group are mostly in few of them."""

import threading
from collections import OrderedDict

from leyden_contracts import Trajectory
from leyden_storage.base import ObjectStore
from leyden_storage.trajectories.reading import read_batch


class BatchCache:
    """One run's batches, the least recently used dropped beyond `limit` bytes of tokens. Safe to share."""

    def __init__(self, store: ObjectStore, run: str, limit: int = 256 * 2**20) -> None:
        self._store, self._run, self._limit = store, run, limit
        self._lock = threading.Lock()
        self._batches: OrderedDict[str, dict[str, Trajectory]] = OrderedDict()
        self._sizes: dict[str, int] = {}

    def get(self, batch: str) -> dict[str, Trajectory]:
        """Return episode -> trajectory. Raises ObjectNotFound, StoreError, UnreadableBatch."""
        with self._lock:
            if batch in self._batches:
                self._batches.move_to_end(batch)
                return self._batches[batch]
        found = {one.episode: one for one in read_batch(self._store, self._run, batch)}
        with self._lock:
            self._batches[batch] = found
            self._sizes[batch] = sum(map(_size, found.values()))
            while len(self._batches) > 1 and sum(self._sizes.values()) > self._limit:
                dropped, _ = self._batches.popitem(last=False)
                del self._sizes[dropped]
        return found


def _size(trajectory: Trajectory) -> int:
    return sum(
        len(call.prompt_token_ids) + len(call.response_token_ids) + len(call.response_logprobs)
        for call in trajectory.transitions
    )
