"""Trying failed episodes again. What has ended stays as it ended (I1): their tasks are uploaded anew."""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from leyden_contracts import Episode, EpisodeState, TaskUpload
from leyden_contracts.api import Uploaded
from leyden_storage.uploads import UploadReader, read_upload, stored_uploads, task_line
from leyden_task_api.intake import accept
from leyden_task_api.parts import Parts
from leyden_task_api.upload import Spool

_PAGE = 1000
_FAILED = (EpisodeState.FAILED, EpisodeState.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class _Again:
    """One new upload."""

    batch: str
    """The upload that the tasks were in before."""
    asked: TaskUpload
    numbers: list[int]
    """Of the tasks in that upload."""


async def retry_failed(parts: Parts, run: str) -> list[Uploaded]:
    """Upload the tasks of failed and timed-out episodes again: for training the whole group, else one for one.

    Each failure is tried again once; what fails anew may be again. Raises ProblemError, LedgerError, StoreError.
    """
    retried = await parts.ledger.episodes.retried(run)
    failed = [episode async for episode in _failed(parts, run) if episode.id not in retried]
    key = "retry:" + hashlib.sha256("\n".join(episode.id for episode in failed).encode()).hexdigest()
    done = []
    for number, again in enumerate(await asyncio.to_thread(_plan, parts, run, failed)):
        with parts.uploads.place(), Spool(again.asked, parts.settings.max_task_bytes) as spool:
            await asyncio.to_thread(_fill, parts, run, again, spool)
            done.append(await accept(parts, run, again.asked, spool, f"{key}:{number}"))
    # After the uploads: one that was cut off finds the same failures, and by their key the same uploads.
    await parts.ledger.episodes.note_retried(run, [episode.id for episode in failed])
    return done


async def _failed(parts: Parts, run: str) -> AsyncIterator[Episode]:
    for state in _FAILED:
        start = 0
        while page := await parts.archive.list(run, state, None, start, _PAGE):
            start += len(page)
            for episode in page:
                yield episode


def _plan(parts: Parts, run: str, failed: list[Episode]) -> list[_Again]:
    """Return what to upload; each original upload makes one, for its parameters are those of the new one."""
    batches = {batch[:12]: batch for batch in stored_uploads(parts.store, run)}
    tasks: dict[str, list[int]] = defaultdict(list)
    for episode in failed:
        _, batch, number = episode.group.rsplit("-", 2)
        tasks[batches[batch]].append(int(number))
    plan = []
    for batch, numbers in sorted(tasks.items()):
        asked = read_upload(parts.store, run, batch).asked
        if asked.purpose == "train":
            plan.append(_Again(batch, asked, sorted(set(numbers))))
        else:
            plan.append(_Again(batch, asked.model_copy(update={"samples": 1}), sorted(numbers)))
    return plan


def _fill(parts: Parts, run: str, again: _Again, spool: Spool) -> None:
    reader = UploadReader(parts.store, run, again.batch)
    for line, number in enumerate(again.numbers, start=1):
        (task,) = reader.tasks(number, 1)
        body = json.loads(task_line(parts.store, run, task.ref))
        del body["id"]
        spool.add_line(line, json.dumps(body).encode())
        if spool.must_write:
            spool.write()
