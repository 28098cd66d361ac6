"""The evaluator: runs the held-out tasks on every so many versions, and promotes the best. Any number may run at once.

    due        the base, then each version that `evaluation.every` divides, as soon as a replica has proved it
    begin      an upload of the held-out tasks that asks for that version; its name is made from the version
    end        every episode has ended: the result is stored, once, and entered in the ledger
    decide     `scoring.decide`; the promotion is stored and entered

Each step is found undone by the next round if a crash cuts it off, and done again with the same outcome.
"""

import asyncio
import time
from collections.abc import Mapping

import structlog

from leyden_contracts import (
    TERMINAL_STATES,
    Episode,
    Evaluation,
    RunSpec,
    StoredUpload,
    TaskUpload,
    episode_id,
    group_id,
)
from leyden_ledger import Ledger, NewUpload, Outpaced, RunState
from leyden_ledger.archive import Archive
from leyden_ledger.evaluations import Progress
from leyden_runtime.failpoints import failpoint
from leyden_storage import ObjectStore
from leyden_storage.keys import upload_key
from leyden_storage.promotions import write_evaluation
from leyden_storage.uploads import HELD_OUT_BATCH, UploadReader, evaluation_batch, read_upload
from leyden_task_api import telemetry
from leyden_task_api.promotion import Promoter
from leyden_task_api.scoring import decide, judge

log = structlog.get_logger()
_AT_ONCE = 2
"""Evaluations of one run that are under way: each keeps a version on the replicas."""
_PAGE = 1000
_ENDED = (RunState.FINISHED, RunState.CANCELLED)


class Evaluator:
    """One process's evaluator."""

    def __init__(self, ledger: Ledger, store: ObjectStore) -> None:
        self._ledger = ledger
        self._store = store
        self._archive = Archive(ledger, store)
        self._promoter = Promoter(ledger, store)
        self._specs: dict[str, RunSpec] = {}

    async def round(self) -> None:
        """Do what is to be done now, for every run that has held-out tasks."""
        runs = await self._ledger.evaluations.watched()
        self._specs = {run: spec for run, spec in self._specs.items() if run in runs}
        for run in runs:
            try:
                await self._look(run)
            except Outpaced:
                log.info("promotion_outpaced", run=run)
            except Exception as error:  # one run's trouble must not stop the others
                telemetry.LOOP_FAILURES.labels("evaluator").inc()
                log.warning("run_not_evaluated", run=run, error=f"{type(error).__name__}: {error}")

    async def _look(self, run: str) -> None:
        if run not in self._specs:
            self._specs[run] = await self._ledger.runs.get(run)
        spec, progress = self._specs[run], await self._ledger.evaluations.progress(run)
        if progress.state is RunState.CANCELLED:
            return await self._leave(run)
        for version in sorted(progress.begun):
            await self._end(run, version)
        progress = await self._ledger.evaluations.progress(run)
        if spec.evaluation.promote:
            await self._promote(run, progress.results)
        await self._begin_due(run, spec, progress)

    async def _begin_due(self, run: str, spec: RunSpec, progress: Progress) -> None:
        due = due_versions(spec.evaluation.every, progress)
        proved = await self._ledger.promotions.proved(run, due)
        if not due and not progress.begun and progress.state in _ENDED and progress.ready == progress.published:
            return await self._leave(run)
        begins = sorted(proved)[: max(_AT_ONCE - len(progress.begun), 0)]
        # Versions that came too fast for the replicas: they load them for this, the newest first.
        unproved = [version for version in due if version not in proved][-_AT_ONCE:]
        # Those under way stay loaded until it is decided whether they are promoted.
        await self._ledger.evaluations.ask_for(run, {*unproved, *begins, *progress.begun})
        for version in begins:
            await self._begin(run, version)
        return None

    async def _begin(self, run: str, version: int) -> None:
        held_out = await asyncio.to_thread(read_upload, self._store, run, HELD_OUT_BATCH)
        samples = held_out.asked.samples or 1
        # The same content: so the same folder, and not one task is copied.
        upload = StoredUpload(
            batch=evaluation_batch(version),
            asked=TaskUpload(purpose="eval", samples=samples, policy_version=version),
            digest=held_out.digest,
            part_lines=held_out.part_lines,
            created=time.time(),
        )
        text = upload.model_dump_json().encode()
        await asyncio.to_thread(self._store.create, upload_key(run, upload.batch), text)
        failpoint("task_api.evaluating")
        new = NewUpload(upload.batch, upload.digest, upload.groups, samples, "eval", version)
        registered = await self._ledger.uploads.register(run, new)
        await self._ledger.evaluations.begin(run, version)
        if not registered.repeated:
            log.info("evaluation_begun", run=run, version=version, episodes=upload.groups * samples)

    async def _end(self, run: str, version: int) -> None:
        """Store and enter the result, if every episode has ended."""
        if await self._ledger.evaluations.groups_left(run, version):
            return
        batch = evaluation_batch(version)
        ids = await asyncio.to_thread(self._episode_ids, run, batch)
        episodes = await self._read(run, ids)
        if any(episode.state not in TERMINAL_STATES for episode in episodes):
            return
        result = judge(run, version, batch, episodes, len(ids), time.time())
        result = await asyncio.to_thread(write_evaluation, self._store, result)
        failpoint("task_api.evaluated")
        await self._ledger.evaluations.record(result)
        log.info("evaluation_ended", **result.model_dump(exclude={"created", "batch"}))

    async def _promote(self, run: str, results: Mapping[int, Evaluation]) -> None:
        # The ledger's history first: the store is asked when there is something to decide.
        if decide(await self._ledger.promotions.history(run), results) is None:
            return
        history = await self._promoter.history(run)
        best = decide(history, results)
        if best is not None:
            await self._promoter.promote_best(history, run, best)

    async def _leave(self, run: str) -> None:
        await self._ledger.evaluations.ask_for(run, ())
        await self._ledger.evaluations.leave(run)

    def _episode_ids(self, run: str, batch: str) -> list[str]:
        reader = UploadReader(self._store, run, batch)
        groups = [group_id(task.id, batch, task.number) for task in reader.tasks(0, reader.upload.groups)]
        return [episode_id(group, index) for group in groups for index in range(reader.upload.asked.samples or 1)]

    async def _read(self, run: str, ids: list[str]) -> list[Episode]:
        found = {episode.id: episode for episode in await self._ledger.episodes.get_many(run, ids)}
        wanted, start = set(ids), 0
        # The run may have been archived since its last episode ended.
        while len(found) < len(wanted) and (page := await self._archive.list(run, None, None, start, _PAGE)):
            found |= {episode.id: episode for episode in page if episode.id in wanted}
            start += _PAGE
        return list(found.values())


def due_versions(every: int, progress: Progress) -> list[int]:
    """Return the versions that are to be evaluated and are not yet, ascending; the promoted one is always compared."""
    wanted = {*range(0, progress.ready + 1, every)} if every else set()
    if progress.promoted is not None:
        wanted.add(progress.promoted)
    return sorted(wanted - progress.begun - progress.results.keys())
