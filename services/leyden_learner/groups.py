"""Which groups come next, and the trajectories of their episodes."""

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from leyden_contracts import Episode, EpisodeState, Group, Trajectory
from leyden_ledger import Ledger
from leyden_storage import ObjectNotFound, ObjectStore
from leyden_storage.trajectories import BatchCache, UnreadableBatch

log = structlog.get_logger()


class GroupReader:
    """Reads a run's finished groups in order, each of them once over all checkpoints (I3)."""

    def __init__(self, ledger: Ledger, store: ObjectStore, run: str, consumed: Iterable[str]) -> None:
        self._ledger, self._run = ledger, run
        self._batches = BatchCache(store, run)
        self._consumed = set(consumed)
        self._seen = 0
        self._last = ""
        self._waiting: list[Group] = []

    async def peek(self, count: int) -> list[Group]:
        """Return the next groups, `count` at most; they come again until they are taken."""
        while len(self._waiting) < count:
            page = await self._next_page(count)
            if not page:
                break
            self._seen += len(page)
            self._last = page[-1].id
            self._waiting += [group for group in page if group.id not in self._consumed]
        return self._waiting[:count]

    async def after(self, skip: int, count: int) -> list[Group]:
        """Return the groups that will come after the next `skip`, as it looks now: nothing is remembered of it."""
        more = await self._ledger.training.finished_groups(self._run, self._seen, count)
        return [*self._waiting, *more][skip : skip + count]

    async def _next_page(self, count: int) -> list[Group]:
        finished = self._ledger.training.finished_groups
        if self._seen:
            page = await finished(self._run, self._seen - 1, count + 1)
            if page and page[0].id == self._last:
                return page[1:]
            # The ledger was rebuilt from the store, in an order of its own: begin again, without what is consumed.
            self._seen, self._waiting = 0, []
        return await finished(self._run, 0, count)

    def take(self, groups: Iterable[Group]) -> None:
        """Say that `groups` are in a committed checkpoint."""
        self._consumed |= {group.id for group in groups}
        self._waiting = [group for group in self._waiting if group.id not in self._consumed]

    async def trajectories(self, group: Group) -> list[Trajectory]:
        """Return the trajectories of the episodes that succeeded, by index. Raises StoreError, LedgerError."""
        episodes = await self._ledger.training.group_episodes(self._run, group)
        good = [episode for episode in episodes if episode.state is EpisodeState.SUCCEEDED]
        names = dict.fromkeys(episode.batch for episode in good if episode.batch)
        read = await asyncio.gather(*(asyncio.to_thread(self._read, name) for name in names))
        batches = dict(zip(names, read, strict=True))
        found = [self._pick(episode, batches.get(episode.batch or "", {})) for episode in good]
        return [trajectory for trajectory in found if trajectory]

    def _read(self, batch: str) -> Mapping[str, Trajectory]:
        try:
            return self._batches.get(batch)
        except (ObjectNotFound, UnreadableBatch) as error:
            log.error("batch_left_out", run=self._run, batch=batch, problem=repr(error))
            return {}

    def _pick(self, episode: Episode, batch: Mapping[str, Trajectory]) -> Trajectory | None:
        trajectory = batch.get(episode.id)
        if trajectory and trajectory.attempt == episode.attempt:
            return trajectory
        problem = "of another attempt than the one that succeeded" if trajectory else "missing"
        log.error("trajectory_left_out", run=episode.run, episode=episode.id, batch=episode.batch, problem=problem)
        return None
