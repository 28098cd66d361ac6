"""From a checked upload to a registered one: the store first, then the ledger, then the answer (DESIGN section 3).

The manifest is the last object written. The ledger is asked before that: a refused upload whose manifest existed would
come back to life when the ledger is rebuilt from the store.
"""

import asyncio
import hashlib
import time

import structlog
from redis import RedisError

from leyden_contracts import RunSpec, StoredUpload, TaskUpload
from leyden_contracts.api import Uploaded
from leyden_ledger import Conflict, LedgerError, NewUpload, RunState, RunSummary, Sealed
from leyden_runtime.failpoints import failpoint
from leyden_storage import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.keys import task_part_key, upload_key
from leyden_storage.uploads import HELD_OUT_BATCH, part_folder, read_upload
from leyden_task_api.parts import Parts
from leyden_task_api.problems import ProblemError
from leyden_task_api.upload import Spool

log = structlog.get_logger()


def settle_question(asked: TaskUpload, spec: RunSpec, summary: RunSummary) -> TaskUpload:
    """Return `asked` with its defaults filled in. Raises ProblemError if the run cannot do this."""
    if asked.purpose != "eval" and asked.policy_version is not None:
        raise ProblemError(422, "`policy_version` is for evaluations: leave it out, or set `purpose=eval`")
    if asked.purpose == "held_out" and not spec.evaluation.every:
        raise ProblemError(422, "this run evaluates nothing by itself: create one with `evaluation.every`, or use eval")
    samples = asked.samples or (spec.group_size if asked.purpose == "train" else 1)
    if asked.purpose == "train" and spec.algorithm.advantage == "grpo" and samples < 2:
        raise ProblemError(422, "`advantage: grpo` compares episodes of one task: set `samples` to 2 or more")
    if (asked.policy_version or 0) > summary.version_published:
        newest = summary.version_published
        raise ProblemError(422, f"version {asked.policy_version} is not published; the newest is {newest}")
    return asked.model_copy(update={"samples": samples})


async def accept(parts: Parts, run: str, asked: TaskUpload, spool: Spool, key: str | None) -> Uploaded:
    """Store the upload and register it. `asked` has its defaults filled in; `key` is the client's own.

    Raises ProblemError, LedgerError, StoreError.
    """
    if asked.purpose == "held_out":
        return await _hold_out(parts, run, asked, spool)
    samples = asked.samples or 1
    _check(spool, samples, parts.settings.max_episodes_per_upload)
    digest = await asyncio.to_thread(spool.digest)
    batch = hashlib.sha256(b"key:" + key.encode()).hexdigest()[:24] if key else digest[:24]
    upload = StoredUpload(batch=batch, asked=asked, digest=digest, part_lines=spool.part_lines, created=time.time())
    new = NewUpload(
        batch=batch,
        fingerprint=digest,
        groups=upload.groups,
        size=samples,
        purpose=asked.purpose,
        version=asked.policy_version,
    )
    most = parts.settings.max_backlog_episodes
    await parts.ledger.uploads.check(run, new, most)
    await asyncio.to_thread(store_upload, parts.store, run, upload, spool)
    failpoint("task_api.stored")
    registered = await parts.ledger.uploads.register(run, new, most)
    failpoint("task_api.accepted")
    await _feed(parts, run)
    return Uploaded(
        batch=batch[:12], groups=upload.groups, episodes=upload.groups * samples, repeated=registered.repeated
    )


async def _hold_out(parts: Parts, run: str, asked: TaskUpload, spool: Spool) -> Uploaded:
    """Store the run's held-out tasks. They are not entered in the ledger: the evaluator uploads them for each version.

    Raises ProblemError, LedgerError, StoreError.
    """
    _check(spool, asked.samples or 1, parts.settings.max_episodes_per_upload)
    summary = await parts.ledger.runs.summary(run)
    if summary.state is RunState.CANCELLED:
        raise Sealed
    digest, batch = await asyncio.to_thread(spool.digest), HELD_OUT_BATCH
    upload = StoredUpload(batch=batch, asked=asked, digest=digest, part_lines=spool.part_lines, created=time.time())
    try:
        await asyncio.to_thread(store_upload, parts.store, run, upload, spool)
    except Conflict as error:
        detail = "this run has other held-out tasks, and scores on others could not be compared: create a new run"
        raise ProblemError(409, detail) from error
    await parts.ledger.evaluations.hold_out(run)
    return Uploaded(batch=batch[:12], groups=upload.groups, episodes=0, repeated=summary.held_out)


def store_upload(store: ObjectStore, run: str, upload: StoredUpload, spool: Spool) -> None:
    """Write the parts, then the manifest; nothing if it is there. Blocks.

    Raises Conflict if another upload has this batch, StoreError.
    """
    if _is_stored(store, run, upload):
        return
    folder = part_folder(upload)
    for number, part in enumerate(spool.parts()):
        # Plain writes: who else writes to this folder writes the same bytes.
        store.put(task_part_key(run, folder, number), part)
    manifest = upload.model_dump_json().encode()
    if not store.create(upload_key(run, upload.batch), manifest) and not _is_stored(store, run, upload):
        raise StoreError(f"the manifest of {upload.batch} was there and is gone")


def _is_stored(store: ObjectStore, run: str, upload: StoredUpload) -> bool:
    try:
        stored = read_upload(store, run, upload.batch)
    except ObjectNotFound:
        return False
    if stored.digest != upload.digest:
        raise Conflict
    return True


def check_faults(spool: Spool, title: str) -> None:
    """Raise ProblemError (422) if something is wrong with an upload."""
    if spool.faults:
        count = f"{len(spool.faults)}{' or more' if spool.full_of_faults else ''}"
        detail = f"nothing was accepted: {count} fault(s), see `errors`"
        raise ProblemError(422, detail, spool.faults, title)


def _check(spool: Spool, samples: int, most: int) -> None:
    check_faults(spool, "Invalid tasks")
    if not spool.groups:
        raise ProblemError(422, "there is no task in this upload", title="Invalid tasks")
    if spool.groups * samples > most:
        detail = f"{spool.groups} tasks of {samples} episodes each; one upload may have {most}: split it"
        raise ProblemError(413, detail)


async def _feed(parts: Parts, run: str) -> None:
    try:
        await parts.feeder.feed(run)
    except (RedisError, StoreError, LedgerError) as error:
        # The upload is accepted, whatever happens now; the feeder's own rounds go on from here.
        log.warning("feed_failed", run=run, error=f"{type(error).__name__}: {error}")
