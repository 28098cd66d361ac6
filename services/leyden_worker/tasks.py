"""Fetches what an attempt needs to know: its task and its run's specification. Both never change, so both are kept."""

import asyncio
from collections import OrderedDict
from typing import Any

from leyden_contracts import RunSpec, Task
from leyden_ledger import Ledger
from leyden_storage import ObjectStore
from leyden_storage.uploads import task_line

_KEPT_RUNS = 64
_KEPT_TASKS = 512
_KEPT_TASK_BYTES = 65536


class TaskReader:
    """Reads tasks from the object store. The episodes of one group share a task."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()

    async def read(self, run: str, ref: str) -> dict[str, Any]:
        """Return the task at `ref`, a place among `run`'s uploads. Raises StoreError, ValueError."""
        kept = self._kept.get((run, ref))
        if kept is not None:
            return kept
        line = await asyncio.to_thread(task_line, self._store, run, ref)
        task = Task.model_validate_json(line).model_dump(mode="json")
        if len(line) <= _KEPT_TASK_BYTES:
            self._kept[run, ref] = task
            if len(self._kept) > _KEPT_TASKS:
                self._kept.popitem(last=False)
        return task


class RunReader:
    """Reads run specifications from the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[str, RunSpec] = OrderedDict()

    async def read(self, run: str) -> RunSpec:
        """Return `run`'s specification. Raises RunNotFound, redis.RedisError."""
        spec = self._kept.get(run)
        if spec is None:
            spec = self._kept[run] = await self._ledger.runs.get(run)
            if len(self._kept) > _KEPT_RUNS:
                self._kept.popitem(last=False)
        return spec
