"""The loops that the task API hosts. Any number of copies may run: the ledger makes each round safe to repeat."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from leyden_ledger import Ledger
from leyden_ledger.archive import archive_run
from leyden_runtime.shutdown import sleep_unless
from leyden_storage import ObjectStore
from leyden_task_api import telemetry
from leyden_task_api.settings import TaskApiSettings

log = structlog.get_logger()
LONGEST_PAUSE_S = 5.0


async def reconcile(ledger: Ledger, settings: TaskApiSettings) -> int:
    """End attempts whose lease ran out or whose spans never came, and cancelled runs; return how many."""
    ended = 0
    for run in await ledger.runs.active():
        ended += await ledger.episodes.expire(run, settings.trace_grace_s)
    if ended:
        telemetry.EXPIRED.inc(ended)
        log.info("attempts_expired", count=ended)
    return ended


async def archive(ledger: Ledger, store: ObjectStore, settings: TaskApiSettings) -> int:
    """Move runs that have been idle for long from Redis to the object store; return how many."""
    moved = 0
    for run in await ledger.runs.resting(settings.archive_after_s):
        moved += await archive_run(ledger, store, run)
        await ledger.runs.archived(run)
        log.info("run_archived", run=run)
    return moved


class Gauges:
    """Shows where every run stands: the active ones, and for a while those that have come to rest."""

    def __init__(self, ledger: Ledger, keep_s: float = 600) -> None:
        self._ledger = ledger
        self._keep_s = keep_s
        self._last_active: dict[str, float] = {}

    async def refresh(self) -> None:
        """Set the gauges anew."""
        now = time.monotonic()
        self._last_active |= dict.fromkeys(await self._ledger.runs.active(), now)
        old = [run for run, then in self._last_active.items() if now - then > self._keep_s]
        for run in old:
            del self._last_active[run]
        telemetry.forget(old)
        for run in list(self._last_active):
            summary = await self._ledger.runs.summary(run)
            telemetry.show(run, summary)
            if summary.held_out:
                progress = await self._ledger.evaluations.progress(run)
                telemetry.show_scores(run, progress.promoted, progress.results)


async def forever(name: str, step: Callable[[], Awaitable[object]], every_s: float, stop: asyncio.Event) -> None:
    """Repeat `step` until `stop`. A failure is logged and counted; the pause doubles until a round succeeds."""
    pause = every_s
    while not await sleep_unless(stop, pause):
        try:
            await step()
        except Exception as error:  # whatever failed, the next round must come: nobody else does this work
            pause = min(max(2 * pause, 0.1), LONGEST_PAUSE_S)
            telemetry.LOOP_FAILURES.labels(name).inc()
            log.warning("loop_failed", loop=name, again_in_s=pause, error=f"{type(error).__name__}: {error}")
        else:
            pause = every_s
