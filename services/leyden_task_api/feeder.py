"""The feeder: enters the next groups of an upload when Redis has room for more episodes."""

import asyncio
from collections import OrderedDict

from leyden_contracts import group_id
from leyden_ledger import Ledger, NewGroup, Window
from leyden_storage import ObjectStore
from leyden_storage.uploads import StoredTask, UploadReader

_KEPT_READERS = 8


class Feeder:
    """Reads uploads back and enters them. Any number may run at once: each group is entered by one of them."""

    def __init__(self, ledger: Ledger, store: ObjectStore, ahead: int) -> None:
        """`ahead` episodes of each run and purpose are to wait in Redis."""
        self._ledger = ledger
        self._store = store
        self._ahead = ahead
        self._lock = asyncio.Lock()
        self._readers: OrderedDict[tuple[str, str], UploadReader] = OrderedDict()

    async def feed(self, run: str) -> int:
        """Enter what there is room for; return how many groups that were. Raises StoreError, redis.RedisError."""
        return sum([await self._enter(run, window) for window in await self._ledger.uploads.windows(run, self._ahead)])

    async def _enter(self, run: str, window: Window) -> int:
        async with self._lock:  # a reader serves one thread at a time
            tasks = await asyncio.to_thread(self._read, run, window)
        groups = [NewGroup(group_id(task.id, window.batch, task.number), task.id, task.ref) for task in tasks]
        return await self._ledger.uploads.enter(run, window.batch, window.start, groups)

    def _read(self, run: str, window: Window) -> list[StoredTask]:
        name = (run, window.batch)
        reader = self._readers.pop(name, None) or UploadReader(self._store, run, window.batch)
        self._readers[name] = reader
        if len(self._readers) > _KEPT_READERS:
            self._readers.popitem(last=False)
        return reader.tasks(window.start, window.count)
