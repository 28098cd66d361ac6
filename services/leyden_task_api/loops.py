"""The loops that the task API hosts. Any number of copies may run: the ledger makes each round safe to repeat."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from leyden_ledger import Ledger
from leyden_runtime.failpoints import failpoint
from leyden_runtime.shutdown import sleep_unless
from leyden_task_api import telemetry
from leyden_task_api.settings import TaskApiSettings

log = structlog.get_logger()
LONGEST_PAUSE_S = 5.0

Ring = Callable[[list[tuple[str, str]]], None]
"""Publishes (run, episode) pairs; may block."""


async def dispatch(ledger: Ledger, ring: Ring, settings: TaskApiSettings) -> int:
    """Let groups start and ring for every due episode; return how many were rung for.

    A ring that fails loses nothing: the ledger returns the same episodes after `ring_again_s`.
    """
    pairs: list[tuple[str, str]] = []
    for run in await ledger.runs.active():
        await ledger.episodes.release(run)
        due = await ledger.episodes.due(run, settings.dispatch_batch, settings.ring_again_s)
        pairs += [(run, episode) for episode in due]
    if pairs:
        failpoint("task_api.due")
        await asyncio.to_thread(ring, pairs)
        failpoint("task_api.rung")
        telemetry.RUNG.inc(len(pairs))
    return len(pairs)


async def reconcile(ledger: Ledger, settings: TaskApiSettings) -> int:
    """End attempts whose lease ran out, or whose spans never came; return how many."""
    ended = 0
    for run in await ledger.runs.active():
        ended += await ledger.episodes.expire(run, settings.trace_grace_s)
    if ended:
        telemetry.EXPIRED.inc(ended)
        log.info("attempts_expired", count=ended)
    return ended


async def refresh_gauges(ledger: Ledger) -> None:
    """Show where every run stands."""
    for run in await ledger.runs.active():
        telemetry.show(run, await ledger.runs.summary(run))


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
