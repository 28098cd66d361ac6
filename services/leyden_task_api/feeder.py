"""The feeder: enters the next groups of an upload when Redis has room for more episodes."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from leyden_contracts import group_id
from leyden_ledger import Ledger, NewGroup, Window
from leyden_storage import ObjectStore
from leyden_storage.uploads import UploadReader

_KEPT_READERS = 8
_AT_ONCE = 5000
"""Groups that are read at a time: a long window holds up neither the loop nor, for long, the memory."""


@dataclass
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Feeder:
    """Reads uploads back and enters them. Any number may run at once: each group is entered by one of them."""

    def __init__(self, ledger: Ledger, store: ObjectStore, ahead: int) -> None:
        """`ahead` episodes of each run and purpose are to wait in Redis."""
        self._ledger = ledger
        self._store = store
        self._ahead = ahead
        self._reading = asyncio.Lock()
        self._readers: OrderedDict[tuple[str, str], UploadReader] = OrderedDict()
        self._turns: dict[str, _Turn] = {}

    def busy(self, run: str) -> bool:
        """Say whether `run` is being fed by this process."""
        return run in self._turns

    async def feed(self, run: str) -> int:
        """Enter what there is room for; return how many groups that were. Raises StoreError, redis.RedisError.

        Who comes second waits, and finds that little is left: two at once would read everything twice.
        """
        turn = self._turns.setdefault(run, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                windows = await self._ledger.uploads.windows(run, self._ahead)
                return sum([await self._enter(run, window) for window in windows])
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[run]

    async def _enter(self, run: str, window: Window) -> int:
        entered, end = 0, window.start + window.count
        groups = await self._read(run, window.batch, window.start, end)
        while groups:
            start = window.start + entered
            # The next are read while Redis enters these.
            made, following = await asyncio.gather(
                self._ledger.uploads.enter(run, window.batch, start, groups, window.size),
                self._read(run, window.batch, start + len(groups), end),
            )
            entered += made
            groups = following if made == len(groups) else []
        return entered

    async def _read(self, run: str, batch: str, start: int, end: int) -> list[NewGroup]:
        if start >= end:
            return []
        async with self._reading:  # a reader serves one thread at a time
            return await asyncio.to_thread(self._groups, run, batch, start, min(_AT_ONCE, end - start))

    def _groups(self, run: str, batch: str, start: int, count: int) -> list[NewGroup]:
        name = (run, batch)
        reader = self._readers.pop(name, None) or UploadReader(self._store, run, batch)
        self._readers[name] = reader
        if len(self._readers) > _KEPT_READERS:
            self._readers.popitem(last=False)
        return [
            NewGroup(group_id(task.id, batch, task.number), task.id, task.ref) for task in reader.tasks(start, count)
        ]
