"""The assembler: every closed attempt whose spans are all stored becomes one trajectory, once.

Any number of collectors may run this. The ledger leases closed attempts, the conditional create makes the trajectory
once, and what a killed collector held is leased again: the same trajectory results, so whoever is second settles.
"""

import asyncio
import time

import structlog
from redis.exceptions import RedisError

from leyden_collector import metrics
from leyden_collector.pace import Pace
from leyden_collector.reader import SegmentReader
from leyden_contracts import Trajectory, Verdict
from leyden_ledger import Closed, Ledger, LedgerError
from leyden_runtime.failpoints import failpoint
from leyden_runtime.shutdown import sleep_unless
from leyden_storage import ObjectStore, StoreError
from leyden_storage.trajectories import read_trajectory, write_trajectory
from leyden_traces import build_trajectory

log = structlog.get_logger()
_REFUSED = {
    "incomplete": "the stored spans of its calls are lost, or contradict each other",
    "conflict": "another trajectory of this episode is stored already",
}
"""Outcome -> what the ledger is told. Such an attempt is never trained on."""


class Assembler:
    """Turns closed attempts into trajectories until it is stopped."""

    def __init__(
        self,
        store: ObjectStore,
        ledger: Ledger,
        reader: SegmentReader,
        pace: Pace,
        *,
        lease_s: float,
        width: int,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._reader = reader
        self._pace = pace
        self._lease_s = lease_s
        self._width = asyncio.Semaphore(width)

    async def run(self, stop: asyncio.Event) -> None:
        """Assemble until `stop` is set; finish the attempts in hand."""
        while not stop.is_set():
            busy = False
            try:
                busy = await self.once()
            except (RedisError, LedgerError, OSError) as error:
                log.warning("ledger_unreachable", error=repr(error))
            if not busy:
                await sleep_unless(stop, self._pace.poll_s)

    async def once(self) -> bool:
        """Ask each run that is due to be asked, and assemble what it has; say whether there was anything."""
        if self._pace.sweep_due():
            self._pace.swept(await self._ledger.runs.active())
        attempts = [closed for run in self._pace.runs() for closed in await self._due(run)]
        await asyncio.gather(*map(self._handle, attempts))
        return bool(attempts)

    async def _due(self, run: str) -> list[Closed]:
        try:
            return await self._ledger.assembly.due(run, self._lease_s)
        except (RedisError, LedgerError, OSError) as error:
            # What earlier runs have leased must still be assembled.
            log.warning("ledger_unreachable", run=run, error=repr(error))
            return []

    async def _handle(self, closed: Closed) -> None:
        bound = log.bind(run=closed.run, episode=closed.episode, attempt=closed.attempt)
        started = time.monotonic()
        async with self._width:
            try:
                outcome = await self._assemble(closed)
            except (StoreError, RedisError, LedgerError, OSError) as error:
                outcome = "retry"
                bound.warning("assembly_postponed", error=repr(error))
            except Exception:
                # One attempt that cannot be assembled must not hold up the others.
                outcome = "error"
                bound.exception("assembly_failed")
        metrics.TRAJECTORIES.labels(outcome=outcome).inc()
        metrics.ASSEMBLY_SECONDS.observe(time.monotonic() - started)

    async def _assemble(self, closed: Closed) -> str:
        trajectory = await self._build(closed)
        outcome = "incomplete"
        if trajectory.verdict is Verdict.COMPLETE:
            outcome = await asyncio.to_thread(self._write_once, trajectory)
            failpoint("collector.written")
        identity = (closed.run, closed.episode, closed.attempt)
        if outcome in _REFUSED:
            log.error("attempt_refused", run=closed.run, episode=closed.episode, outcome=outcome)
            await self._ledger.assembly.refuse(*identity, _REFUSED[outcome])
        else:
            await self._ledger.assembly.settle(*identity)
        return outcome

    async def _build(self, closed: Closed) -> Trajectory:
        return build_trajectory(
            run=closed.run,
            group=closed.group,
            episode=closed.episode,
            task=closed.task,
            attempt=closed.attempt,
            purpose=closed.purpose,
            reward=closed.reward,
            rewards=closed.rewards,
            calls=closed.calls,
            transitions=await self._reader.transitions(closed),
        )

    def _write_once(self, trajectory: Trajectory) -> str:
        if write_trajectory(self._store, trajectory):
            return "written"
        stored = read_trajectory(self._store, trajectory.run, trajectory.group, trajectory.episode)
        return "repeated" if stored == trajectory else "conflict"
