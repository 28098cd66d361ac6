"""The dispatcher: lets groups start, and rings for what is due. Any number may run at once.

Only so many rings wait in the queue at a time: who comes next is decided when a worker is about to be free, not when
the episodes were uploaded, so that a small run need not wait behind a large one.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from leyden_ledger import Ledger, RunNotFound, Standing
from leyden_runtime.failpoints import failpoint
from leyden_task_api import telemetry
from leyden_task_api.fairness import Demand, deal, interleave
from leyden_task_api.feeder import Feeder
from leyden_task_api.owners import Owners
from leyden_task_api.settings import TaskApiSettings

log = structlog.get_logger()
_QUIET_S = 0.5
_QUIET_RUNS = 10_000

Ring = Callable[[list[tuple[str, str]]], None]
"""Publishes (run, episode) pairs; may block."""
Waiting = Callable[[], int]
"""Rings that no worker has taken yet; may block."""


class Dispatcher:
    """One process's dispatcher."""

    def __init__(self, ledger: Ledger, feeder: Feeder, ring: Ring, waiting: Waiting, settings: TaskApiSettings) -> None:
        self._ledger = ledger
        self._feeder = feeder
        self._ring = ring
        self._waiting = waiting
        self._settings = settings
        self._turn = 0
        self._owners = Owners(ledger)
        self._look_again: dict[str, float] = {}

    async def round(self) -> int:
        """Do what is to be done now; return how many episodes were rung for.

        A ring that fails loses nothing: the ledger returns the same episodes after `ring_again_s`.
        """
        runs = [run for run in await self._ledger.runs.active() if self._look_again.get(run, 0) <= time.monotonic()]
        standings = dict(zip(runs, await asyncio.gather(*map(self._look, runs)), strict=True))
        demands = [await self._demand(run, standing) for run, standing in standings.items() if standing]
        if not any(demand.due for demand in demands):
            return 0
        room = self._settings.rings_ahead - await asyncio.to_thread(self._waiting)
        self._turn += 1
        return await self._ring_for(deal(demands, room, self._turn))

    async def _look(self, run: str) -> Standing | None:
        try:
            standing = await self._ledger.episodes.look(run)
            # What somebody else is entering is rung for as it comes.
            if standing.pending and not self._feeder.busy(run) and await self._feeder.feed(run):
                standing = await self._ledger.episodes.look(run)
            self._note(run, standing)
        except Exception as error:  # one run's trouble must not stop the others
            telemetry.LOOP_FAILURES.labels("dispatcher").inc()
            log.warning("run_not_dispatched", run=run, error=f"{type(error).__name__}: {error}")
            return None
        return standing

    def _note(self, run: str, standing: Standing) -> None:
        """Leave a run that waits for nothing alone for a while: open runs without episodes must cost little."""
        if standing.unfinished:
            self._look_again.pop(run, None)
            return
        if len(self._look_again) >= _QUIET_RUNS:
            self._look_again.clear()
        self._look_again[run] = time.monotonic() + _QUIET_S

    async def _demand(self, run: str, standing: Standing) -> Demand:
        try:
            tenant, priority = await self._owners.of(run)
        except RunNotFound:
            return Demand(run, "", 0, 0)
        return Demand(run, tenant, priority, standing.due)

    async def _ring_for(self, shares: dict[str, int]) -> int:
        again = self._settings.ring_again_s
        due = await asyncio.gather(*(self._ledger.episodes.due(run, share, again) for run, share in shares.items()))
        pairs = interleave(dict(zip(shares, due, strict=True)))
        if pairs:
            failpoint("task_api.due")
            await asyncio.to_thread(self._ring, pairs)
            failpoint("task_api.rung")
            telemetry.RUNG.inc(len(pairs))
        return len(pairs)
