"""The keeper: merges the segments of archived runs, and deletes what a run's `retention` no longer keeps.

Any number of copies may run: a lock in Redis gives each run to one of them, and should that one be slow or die, nothing
is lost or counted twice (`leyden_storage.segments`, `leyden_storage.expiry`). A run is looked at when it has been
archived, and when its retention says so: never in between, for listing its objects is dear.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import structlog
from redis.asyncio.lock import Lock
from redis.exceptions import LockError

from leyden_ledger import Ledger
from leyden_ledger.archive import archived_parts
from leyden_storage import ObjectStore
from leyden_storage.expiry import note_ended, write_expired
from leyden_storage.keys import segments_prefix, trajectories_prefix
from leyden_storage.segments import MERGED_BYTES, loose_segments, merge_segments
from leyden_task_api import telemetry

log = structlog.get_logger()
_DAY_S = 86_400
_RUNS_AT_ONCE = 16
_LISTED_AT_ONCE = 50_000
"""Keys: what is held in memory."""
_DELETED_AT_ONCE = 1_000
_LEASE_S = 300.0
_LATER_S = 300.0
"""Until the next try, after a failure or when the run has work."""
_THREADS = 8


class _Disturbed(Exception):
    """The run has work again, somebody else keeps it, or this process ends: nothing more is done for now."""


class Keeper:
    """One process's keeper."""

    def __init__(
        self, ledger: Ledger, store: ObjectStore, stop: asyncio.Event, merged_bytes: int = MERGED_BYTES
    ) -> None:
        """Between two objects, `stop` is heeded."""
        self._ledger = ledger
        self._store = store
        self._stop = stop
        self._merged_bytes = merged_bytes

    async def round(self) -> int:
        """Care for the runs whose time has come; return how many."""
        kept = 0
        for run, since in await self._ledger.keeping.due(_RUNS_AT_ONCE):
            turn = self._ledger.keeping.turn(run, _LEASE_S)
            if self._stop.is_set() or not await turn.acquire():
                continue
            try:
                if await self._ledger.keeping.is_due(run):
                    await self._keep(run, since, turn)
                    kept += 1
            except Exception as error:  # one run's trouble must not stop the others
                telemetry.LOOP_FAILURES.labels("keeper").inc()
                log.warning("run_not_kept", run=run, error=f"{type(error).__name__}: {error}")
                again = await self._ledger.keeping.now() + _LATER_S
                await self._ledger.keeping.again(run, again, await self._ledger.keeping.archive(run))
            finally:
                await _end(turn)
        return kept

    async def _keep(self, run: str, since: float, turn: Lock) -> None:
        archive, now = await self._ledger.keeping.archive(run), await self._ledger.keeping.now()
        retention = (await self._ledger.runs.get(run)).retention
        later = []
        try:
            await self._check_rest(run)
            ended = await asyncio.to_thread(note_ended, self._store, run, since)
            if _over(ended, retention.segments_days, now):
                await self._delete_segments(run, turn)
            else:
                await self._merge(run, turn)
                later.append(retention.segments_days)
            if _over(ended, retention.trajectories_days, now):
                await self._expire(run, turn)
            else:
                later.append(retention.trajectories_days)
        except _Disturbed:
            log.info("keeping_disturbed", run=run)
            await self._ledger.keeping.again(run, now if self._stop.is_set() else now + _LATER_S, archive)
            return
        days = [kept for kept in later if kept is not None]
        await self._ledger.keeping.again(run, ended + min(days) * _DAY_S if days else None, archive)

    async def _check_rest(self, run: str) -> None:
        if not (await self._ledger.runs.summary(run)).idle:
            raise _Disturbed

    async def _merge(self, run: str, turn: Lock) -> None:
        whole = False
        while not whole:
            # Listed first: what is there while nothing is under way, nothing that comes later can need.
            keys = await asyncio.to_thread(_some, loose_segments(self._store, run))
            await self._check_rest(run)
            merging = merge_segments(self._store, run, keys, self._merged_bytes)
            whole = len(keys) < _LISTED_AT_ONCE
            while merged := await asyncio.to_thread(next, merging, None):
                telemetry.MERGED.inc(merged.segments)
                telemetry.MERGED_BYTES.inc(merged.bytes)
                log.info("segments_merged", run=run, segments=merged.segments, bytes=merged.bytes)
                await self._go_on(turn)

    async def _delete_segments(self, run: str, turn: Lock) -> None:
        while keys := await asyncio.to_thread(_some, self._store.list(segments_prefix(run))):
            await self._check_rest(run)
            await self._delete(run, keys, "segments", turn)

    async def _expire(self, run: str, turn: Lock) -> None:
        while keys := await asyncio.to_thread(_some, self._store.list(trajectories_prefix(run))):
            parts = await archived_parts(self._ledger, self._store, run)
            if not parts:  # never without a record, whatever has become of the archive
                raise _Disturbed
            # What was listed before is of episodes in these parts. The record first, then the deletion.
            record = partial(write_expired, self._store, run, partial(map, self._store.get, parts))
            if not await asyncio.to_thread(record, await self._ledger.keeping.now()):
                raise _Disturbed
            await self._delete(run, keys, "trajectories", turn)

    async def _delete(self, run: str, keys: Sequence[str], kind: str, turn: Lock) -> None:
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            part = keys[start : start + _DELETED_AT_ONCE]
            await asyncio.to_thread(_delete_all, self._store, part)
            telemetry.DELETED.labels(kind).inc(len(part))
            await self._go_on(turn)
        log.info("deleted_by_retention", run=run, kind=kind, objects=len(keys))

    async def _go_on(self, turn: Lock) -> None:
        """Keep the lock; a lost one is somebody else's by now."""
        if self._stop.is_set():
            raise _Disturbed
        try:
            await turn.reacquire()
        except LockError as error:
            raise _Disturbed from error


def _over(ended: float, days: float | None, now: float) -> bool:
    return days is not None and ended + days * _DAY_S <= now


def _some(keys: Iterator[str]) -> list[str]:
    return list(islice(keys, _LISTED_AT_ONCE))


def _delete_all(store: ObjectStore, keys: Sequence[str]) -> None:
    with ThreadPoolExecutor(_THREADS, "delete") as pool:
        list(pool.map(store.delete, keys))


async def _end(turn: Lock) -> None:
    with contextlib.suppress(LockError):
        await turn.release()
