"""The learner's main loop.

For each run in turn, as long as the process lives:

    start      version 1, where the run has a start                    start.RunStart
    ledger     which groups are finished and not yet consumed          groups.GroupReader
    choice     do they make a step, or are more to be asked for        choice.StepChooser
    store      the trajectories of their succeeded episodes            groups.GroupReader
    batch      stale and incomplete out; credit, advantages            batch.build_batch
    step       forward, backward, optimizer (in a thread)              trainer.Trainer
    store      adapter, optimizer, rng; the manifest commits           checkpoint.commit
    ledger     publish the version                                     run_training.RunTraining

Nothing is kept between batches that is not in the newest checkpoint: after any failure a run's training is thrown
away and resumed from there. One run's trouble never stops another.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from leyden_learner.metrics import FAILURES
from leyden_learner.policy import UnknownModel
from leyden_learner.processes import TeamBroken
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_learner.start import RunStart, StartRefused, resume
from leyden_ledger import RunState
from leyden_runtime.shutdown import sleep_unless

log = structlog.get_logger()

_LONGEST_PAUSE_S = 15.0
_OVER = (RunState.FINISHED, RunState.CANCELLED)


@dataclass(slots=True)
class _Pause:
    seconds: float
    until: float


class Learner:
    """Trains every run of the deployment, or only one."""

    def __init__(self, around: Surroundings, poll_s: float, only: str | None = None) -> None:
        self._around = around
        self._poll_s = poll_s
        self._only = only
        self._trainings: dict[str, RunTraining | RunStart] = {}
        self._pauses: dict[str, _Pause] = {}
        self._closed: set[str] = set()
        """Runs that are finished, or that this learner cannot train."""

    async def run(self, stop: asyncio.Event) -> None:
        """Train until `stop` is set; a step that has begun is finished and committed first. Raises TeamBroken."""
        while not stop.is_set():
            trained = False
            for run in await self._open_runs():
                if not stop.is_set() and self._may_try(run):
                    trained |= await self._advance(run)
            if not trained:
                await sleep_unless(stop, self._poll_s)

    async def _open_runs(self) -> Sequence[str]:
        try:
            runs = [self._only] if self._only else await self._around.ledger.runs.active()
        except Exception:
            log.exception("ledger_failed")
            return []
        return [run for run in runs if run not in self._closed]

    def _may_try(self, run: str) -> bool:
        pause = self._pauses.get(run)
        return pause is None or time.monotonic() >= pause.until

    async def _advance(self, run: str) -> bool:
        """Let one run make a step if it can; say whether it did."""
        try:
            progress = await self._step(run)
        except (UnknownModel, StartRefused) as error:
            log.error("run_cannot_be_trained", run=run, reason=str(error))
            FAILURES.labels(run, type(error).__name__).inc()
            self._close(run)
            return False
        except TeamBroken:
            raise
        except Exception as error:
            self._failed(run, error)
            return False
        self._pauses.pop(run, None)
        if progress is Progress.FINISHED:
            log.info("run_finished", run=run)
            self._close(run)
        return progress is Progress.TRAINED

    async def _step(self, run: str) -> Progress:
        if run not in self._trainings:
            if (await self._around.ledger.runs.summary(run)).state in _OVER:
                return Progress.FINISHED
            self._trainings[run] = await resume(self._around, run)
        return await self._trainings[run].advance()

    def _close(self, run: str) -> None:
        self._closed.add(run)
        self._trainings.pop(run, None)
        self._around.tracking.ended(run)

    def _failed(self, run: str, error: Exception) -> None:
        last = self._pauses.get(run)
        seconds = min(2 * last.seconds, _LONGEST_PAUSE_S) if last else self._poll_s
        self._pauses[run] = _Pause(seconds, time.monotonic() + seconds)
        self._trainings.pop(run, None)
        FAILURES.labels(run, type(error).__name__).inc()
        log.error("run_failed", run=run, retry_in_s=seconds, exc_info=error)
