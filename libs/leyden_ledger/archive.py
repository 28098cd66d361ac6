"""Ended runs leave Redis for the object store: a server that runs for months keeps what is under way, and no more.

What stays of a run in Redis is a few kilobytes: its specification, counters and uploads. Its episodes are JSON lines
under `runs/RUN/archive/`, in order of acceptance; `Archive` reads them together with those that are in Redis.
"""

import asyncio
from collections import Counter

from pydantic import TypeAdapter

from leyden_contracts import Episode, EpisodeState, Purpose, episode_id
from leyden_contracts.base import Message
from leyden_ledger.errors import EpisodeNotFound
from leyden_ledger.ledger import Ledger
from leyden_ledger.store import key
from leyden_storage import ObjectStore
from leyden_storage.keys import archive_key, archive_part_key

_PART = 5_000
_FORGET_AT_ONCE = 500
_LARGEST_GROUP = 256


class ArchivePart(Message):
    """One object of archived episodes."""

    first: int
    """Episodes before it."""
    counts: dict[EpisodeState, int]
    """State -> episodes."""

    @property
    def count(self) -> int:
        """Episodes in it."""
        return sum(self.counts.values())


_PARTS = TypeAdapter(list[ArchivePart])
_EPISODES = TypeAdapter(list[Episode])


async def archive_run(ledger: Ledger, store: ObjectStore, run: str) -> bool:
    """Move an idle run's episodes to the object store; False if it is not idle, or has none in Redis. Repeatable.

    Raises RunNotFound, StoreError, redis.RedisError.
    """
    await _forget(ledger, run)  # what an earlier one that was cut off has left
    if not (await ledger.runs.summary(run)).idle or not await ledger.redis.zcard(key(run, "episodes")):
        return False
    number, parts = await _parts(ledger, store, run)
    archived = sum(part.count for part in parts)
    last = 0
    while rows := await ledger.episodes.page(run, last, _PART):
        part = ArchivePart(first=archived, counts=Counter(episode.state for _, episode in rows))
        lines = _EPISODES.dump_json([episode for _, episode in rows])
        # A plain write: one that was cut off has written the same, or what nobody refers to.
        await asyncio.to_thread(store.put, archive_part_key(run, part.first), lines)
        parts.append(part)
        archived, last = archived + part.count, rows[-1][0] + 1
    await asyncio.to_thread(store.put, archive_key(run, number + 1), _PARTS.dump_json(parts))
    if not await ledger.episodes.archived(run, number + 1, archived, last - 1):
        return False
    await _forget(ledger, run)
    return True


async def archived_parts(ledger: Ledger, store: ObjectStore, run: str) -> list[str] | None:
    """Return the keys of the run's archive, JSON lists of episodes; None if not all of its episodes are there.

    Raises RunNotFound, StoreError, redis.RedisError.
    """
    if not (await ledger.runs.summary(run)).idle or await ledger.redis.zcard(key(run, "episodes")):
        return None
    return [archive_part_key(run, part.first) for part in (await _parts(ledger, store, run))[1]]


class Archive:
    """Reads a run's episodes wherever they are."""

    def __init__(self, ledger: Ledger, store: ObjectStore) -> None:
        self._ledger = ledger
        self._store = store

    async def get(self, run: str, episode: str) -> Episode:
        """Return one episode. Raises EpisodeNotFound, StoreError, redis.RedisError."""
        try:
            return await self._ledger.episodes.get(run, episode)
        except EpisodeNotFound:
            for part in (await _parts(self._ledger, self._store, run))[1]:
                for one in await _read(self._store, run, part):
                    if one.id == episode:
                        return one
            raise

    async def group(self, run: str, group: str) -> list[Episode]:
        """Return a group's episodes, by index; none if there is no such group. Raises StoreError, redis.RedisError."""
        ids = [episode_id(group, index) for index in range(_LARGEST_GROUP)]
        found = await self._ledger.episodes.get_many(run, ids)
        for part in (await _parts(self._ledger, self._store, run))[1] if not found else ():
            found += [one for one in await _read(self._store, run, part) if one.group == group]
        return found

    async def list(
        self,
        run: str,
        state: EpisodeState | None = None,
        purpose: Purpose | None = None,
        start: int = 0,
        count: int = 100,
    ) -> list[Episode]:
        """Return `count` episodes from the `start`-th on, in order of acceptance; `purpose` filters that page.

        Raises StoreError, redis.RedisError.
        """
        found: list[Episode] = []
        before = 0
        for part in (await _parts(self._ledger, self._store, run))[1]:
            size = part.counts.get(state, 0) if state else part.count
            if before + size > start and len(found) < count:
                episodes = [one for one in await _read(self._store, run, part) if state in (None, one.state)]
                found += episodes[max(start - before, 0) :]
            before += size
        if len(found) < count:
            offset = start + len(found) - before
            found += await self._ledger.episodes.list(run, state, None, offset, count - len(found), unarchived=True)
        return [one for one in found[:count] if purpose in (None, one.purpose)]


async def _read(store: ObjectStore, run: str, part: ArchivePart) -> list[Episode]:
    return _EPISODES.validate_json(await asyncio.to_thread(store.get, archive_part_key(run, part.first)))


async def _forget(ledger: Ledger, run: str) -> None:
    while await ledger.episodes.forget(run, _FORGET_AT_ONCE):
        pass


async def _parts(ledger: Ledger, store: ObjectStore, run: str) -> tuple[int, list[ArchivePart]]:
    number = int(await ledger.redis.hget(key(run, "run"), "archive") or 0)
    if not number:
        return 0, []
    return number, _PARTS.validate_json(await asyncio.to_thread(store.get, archive_key(run, number)))
