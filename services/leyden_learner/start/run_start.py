"""A run from nothing to version 1, and then on as any other."""

import asyncio
import time

from leyden_contracts import RunSpec, StartRefusal
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_learner.start.errors import StartRefused
from leyden_learner.start.version import FIRST
from leyden_learner.start.work import Work, begin_work
from leyden_ledger import RunState
from leyden_runtime.failpoints import failpoint
from leyden_storage.keys import manifest_key
from leyden_storage.starts import write_refusal


async def resume(around: Surroundings, run: str) -> "RunTraining | RunStart":
    """Go on with a run: with its start, if it has one and version 1 is not there. Raises as `RunTraining.resume`."""
    spec = await around.ledger.runs.get(run)
    first = manifest_key(run, spec.lead_role, FIRST)
    if spec.start and not await asyncio.to_thread(around.store.exists, first):
        return RunStart(around, spec)
    return await RunTraining.resume(around, run)


class RunStart:
    """Makes version 1, an optimizer step at a time, so that other runs get their turns; then trains the run."""

    def __init__(self, around: Surroundings, spec: RunSpec) -> None:
        self._around, self._spec, self._run = around, spec, str(spec.id)
        self._work: Work | None = None
        self._training: RunTraining | None = None

    async def advance(self) -> Progress:
        """Take one step. Raises StartRefused, which the store then tells of, and what `RunTraining` raises."""
        if self._training:
            return await self._training.advance()
        if (await self._around.ledger.runs.summary(self._run)).state is RunState.CANCELLED:
            return Progress.FINISHED
        if self._work is None:
            self._work = await self._begin()
            return Progress.TRAINED if self._work else Progress.WAITING
        if await asyncio.to_thread(self._work.step):
            failpoint("learner.start_stepped")
            return Progress.TRAINED
        manifests = await asyncio.to_thread(self._work.commit, self._around.store)
        self._around.tracking.committed(self._spec, manifests)
        failpoint("learner.start_committed")
        # From the checkpoint, as after a crash: whatever the start had in memory is gone.
        self._work = None
        self._training = await RunTraining.resume(self._around, self._run)
        return Progress.TRAINED

    async def _begin(self) -> Work | None:
        try:
            return await asyncio.to_thread(begin_work, self._around, self._spec)
        except StartRefused as error:
            refusal = StartRefusal(reason=str(error), created=time.time())
            await asyncio.to_thread(write_refusal, self._around.store, self._run, refusal)
            raise
