"""From a checked upload to episodes: the object store first, then the ledger, then the answer (DESIGN section 3)."""

import asyncio
import hashlib

from leyden_contracts import RunSpec, TaskUpload
from leyden_contracts.api import Uploaded
from leyden_ledger import NewGroup, RunState, RunSummary, Sealed
from leyden_runtime.failpoints import failpoint
from leyden_storage.keys import tasks_key
from leyden_task_api.parts import Parts
from leyden_task_api.problems import ProblemError
from leyden_task_api.upload import Spool


def settle_question(asked: TaskUpload, spec: RunSpec, summary: RunSummary) -> TaskUpload:
    """Return `asked` with its defaults filled in. Raises ProblemError if the run cannot do this."""
    samples = asked.samples or (spec.group_size if asked.purpose == "train" else 1)
    if asked.purpose == "train" and asked.policy_version is not None:
        raise ProblemError(422, "`policy_version` is for evaluations: leave it out, or set `purpose=eval`")
    if asked.purpose == "train" and spec.algorithm.advantage == "grpo" and samples < 2:
        raise ProblemError(422, "`advantage: grpo` compares episodes of one task: set `samples` to 2 or more")
    if (asked.policy_version or 0) > summary.version_published:
        newest = summary.version_published
        raise ProblemError(422, f"version {asked.policy_version} is not published; the newest is {newest}")
    return asked.model_copy(update={"samples": samples})


async def accept(parts: Parts, run: str, asked: TaskUpload, spool: Spool, key: str | None) -> Uploaded:
    """Store the upload and enter its episodes. `asked` has its defaults filled in; `key` is the client's own.

    Raises ProblemError, LedgerError, StoreError.
    """
    samples = asked.samples or 1
    _check(spool, samples, parts.settings.max_episodes_per_upload)
    batch = hashlib.sha256(b"key:" + key.encode()).hexdigest()[:24] if key else spool.digest[:24]
    await _store(parts, run, batch, asked, spool)
    where = tasks_key(run, batch)
    failpoint("task_api.stored")
    groups = [
        NewGroup(
            id=f"{task.id}-{batch[:12]}-{number}",
            task=task.id,
            task_ref=f"{where}#{task.offset}+{task.length}",
            purpose=asked.purpose,
            size=samples,
            version=asked.policy_version,
        )
        for number, task in enumerate(spool.tasks)
    ]
    accepted = await parts.ledger.episodes.accept(run, groups, batch)
    failpoint("task_api.accepted")
    return Uploaded(batch=batch[:12], groups=len(groups), episodes=len(groups) * samples, repeated=accepted.repeated)


def _check(spool: Spool, samples: int, most: int) -> None:
    if spool.faults:
        count = f"{len(spool.faults)}{' or more' if spool.full_of_faults else ''}"
        detail = f"nothing was accepted: {count} fault(s), see `errors`"
        raise ProblemError(422, detail, spool.faults, "Invalid tasks")
    if not spool.tasks:
        raise ProblemError(422, "there is no task in this upload", title="Invalid tasks")
    if len(spool.tasks) * samples > most:
        detail = f"{len(spool.tasks)} tasks of {samples} episodes each; one upload may have {most}: split it"
        raise ProblemError(413, detail)


async def _store(parts: Parts, run: str, batch: str, asked: TaskUpload, spool: Spool) -> None:
    where = tasks_key(run, batch)
    # Asked before the write: the object of a refused upload would come back to life when the ledger is rebuilt.
    closed = asked.purpose == "train" and (await parts.ledger.runs.summary(run)).state is not RunState.OPEN
    if closed and not await asyncio.to_thread(parts.store.exists, where):
        raise Sealed
    if await asyncio.to_thread(parts.store.create, where, spool.content()):
        return
    stored = await asyncio.to_thread(parts.store.get, where)
    if hashlib.sha256(stored).hexdigest() != spool.digest:
        raise ProblemError(
            422, "this Idempotency-Key was used for other tasks or other parameters before; use a new one"
        )
