"""Rebuilding a lost ledger from the object store (DESIGN section 5).

What is known there: runs, uploads, trajectories and checkpoints. So every episode with a stored trajectory has
succeeded, every group in a checkpoint is consumed, evaluations and promotions are as they were, episodes whose
trajectories are gone by retention are as recorded, and all else runs again. An attempt from before the loss may still
be under way: the attempts after it are numbered from a higher number on, so that it stays fenced.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from leyden_contracts import AdapterManifest, Episode, EpisodeState, RunSpec, StoredUpload, group_id
from leyden_ledger.ledger import Ledger
from leyden_ledger.store import ATTEMPTS_APART
from leyden_ledger.training import StoredEpisode
from leyden_ledger.uploads import NewGroup, NewUpload
from leyden_storage import ObjectStore
from leyden_storage.expiry import expired_episodes
from leyden_storage.keys import (
    adapter_versions,
    cancelled_key,
    manifest_key,
    recovery_key,
    run_key,
    sealed_key,
)
from leyden_storage.promotions import stored_evaluations, stored_promotions
from leyden_storage.trajectories import Detail, read_batch, stored_batches
from leyden_storage.uploads import UploadReader, read_upload, stored_uploads

log = structlog.get_logger()
_ENTER_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one run."""

    run: str
    uploads: int
    succeeded: int
    """Episodes whose trajectories were found."""
    versions: int
    """Policy versions."""


@dataclass(slots=True)
class _Known:
    """What the object store says of a run."""

    spec: RunSpec
    uploads: list[StoredUpload]
    manifests: list[AdapterManifest]
    stored: dict[str, list[StoredEpisode]] = field(default_factory=dict)
    """Group -> its episodes whose trajectories are stored."""
    expired: dict[str, list[Episode]] = field(default_factory=dict)
    """Group -> its episodes, of the groups whose trajectories are gone by the run's retention."""

    @property
    def consumed(self) -> list[str]:
        """Groups in checkpoints, in order."""
        return [group for manifest in self.manifests for group in manifest.groups]

    @property
    def asked(self) -> int:
        """Groups that steps consumed beyond their `groups_per_step`."""
        steps = max(0, len(self.manifests) - self.spec.first_version)
        return max(0, len(self.consumed) - steps * self.spec.algorithm.groups_per_step)


async def recover_run(ledger: Ledger, store: ObjectStore, run: str) -> Recovered | None:
    """Rebuild one run, or go on with a rebuilding that was cut off; None if the ledger has it.

    Raises StoreError, redis.RedisError; then nothing of the run starts until this has been repeated.
    """
    if await _is_there(ledger, run):
        return None
    known = await asyncio.to_thread(_read, store, run)
    # A run without uploads has no attempts that could still be under way.
    number = await asyncio.to_thread(_next_recovery, store, run) if known.uploads else 0
    await ledger.runs.create(known.spec, number * ATTEMPTS_APART)
    if known.manifests:
        await ledger.training.publish(run, known.manifests[-1].version)
    for upload in known.uploads:
        await _register(ledger, store, run, upload, known)
    await _restore_promotions(ledger, store, run)
    succeeded = await _restore(ledger, store, run, known)
    await ledger.training.consumed(run, len(known.consumed))
    await ledger.training.ask_for(run, known.asked)
    if await asyncio.to_thread(store.exists, sealed_key(run)):
        await ledger.runs.seal(run)
    if await asyncio.to_thread(store.exists, cancelled_key(run)):
        await ledger.runs.cancel(run)
    await ledger.runs.hold(run, None)
    done = Recovered(run, len(known.uploads), succeeded, len(known.manifests))
    log.info("run_recovered", run=run, uploads=done.uploads, succeeded=succeeded, versions=done.versions)
    return done


async def recover(ledger: Ledger, store: ObjectStore) -> list[Recovered]:
    """Rebuild every run of the object store that the ledger does not have. Raises as `recover_run` does."""
    found = [await recover_run(ledger, store, run) for run in await asyncio.to_thread(stored_runs, store)]
    return [one for one in found if one]


def stored_runs(store: ObjectStore) -> list[str]:
    """Return the ids of the runs in the object store."""
    return [name.split("/")[1] for name in store.list("runs/") if name.endswith("/run.json") and name.count("/") == 2]


async def _is_there(ledger: Ledger, run: str) -> bool:
    if run not in await ledger.runs.list():
        return False
    return (await ledger.runs.summary(run)).held != "recovering"


def _next_recovery(store: ObjectStore, run: str) -> int:
    number = 1
    while not store.create(recovery_key(run, number), b"{}"):
        number += 1
    return number


def _read(store: ObjectStore, run: str) -> _Known:
    spec = RunSpec.model_validate_json(store.get(run_key(run)))
    uploads = [read_upload(store, run, batch) for batch in stored_uploads(store, run)]
    role = spec.lead_role
    versions = adapter_versions(store, run, role)
    manifests = [AdapterManifest.model_validate_json(store.get(manifest_key(run, role, n))) for n in versions]
    known = _Known(spec, sorted(uploads, key=lambda upload: (upload.created, upload.batch)), manifests)
    for group, episode in _stored_episodes(store, run).values():
        known.stored.setdefault(group, []).append(episode)
    for ended in expired_episodes(store, run):
        known.expired.setdefault(ended.group, []).append(ended)
    return known


def _stored_episodes(store: ObjectStore, run: str) -> dict[str, tuple[str, StoredEpisode]]:
    """Return (group, what is stored) by episode; where there is more than one, of the highest attempt."""
    found: dict[str, tuple[str, StoredEpisode]] = {}
    for batch in stored_batches(store, run):
        for one in read_batch(store, run, batch, Detail.CALLS):
            calls = one.transitions
            version = calls[0].policy_version if calls else None
            new = StoredEpisode(one.episode, one.attempt, one.reward, version, len(calls), batch)
            if one.episode not in found or found[one.episode][1].attempt <= one.attempt:
                found[one.episode] = one.group, new
    return found


async def _register(ledger: Ledger, store: ObjectStore, run: str, upload: StoredUpload, known: _Known) -> None:
    """Enter an upload, and those of its groups that had begun."""
    asked = upload.asked
    if asked.purpose == "held_out":
        return await ledger.evaluations.hold_out(run)
    size, version = asked.samples or 1, asked.policy_version
    new = NewUpload(upload.batch, upload.digest, upload.groups, size, asked.purpose, version)
    await ledger.uploads.register(run, new)
    begun = {
        _number(group)
        for group in {*known.stored, *known.consumed, *known.expired}
        if _batch(group) == upload.batch[:12]
    }
    if not begun:
        return None
    reader = await asyncio.to_thread(UploadReader, store, run, upload.batch)
    for start in range(await ledger.uploads.entered(run, upload.batch), max(begun) + 1, _ENTER_AT_ONCE):
        tasks = await asyncio.to_thread(reader.tasks, start, min(_ENTER_AT_ONCE, max(begun) + 1 - start))
        groups = [NewGroup(group_id(task.id, upload.batch, task.number), task.id, task.ref) for task in tasks]
        await ledger.uploads.enter(run, upload.batch, start, groups)
    return None


async def _restore_promotions(ledger: Ledger, store: ObjectStore, run: str) -> None:
    for evaluation in await asyncio.to_thread(stored_evaluations, store, run):
        await ledger.evaluations.record(evaluation)
    for promotion in await asyncio.to_thread(lambda: list(stored_promotions(store, run))):
        await ledger.promotions.record(promotion)


async def _restore(ledger: Ledger, store: ObjectStore, run: str, known: _Known) -> int:
    consumed = set(known.consumed)
    # The consumed ones first, in their order: the learner counts on it.
    groups = known.consumed + sorted({*known.stored, *known.expired} - consumed)
    found = 0
    for group in groups:
        if ended := known.expired.get(group):
            await ledger.training.restore_ended(run, group, ended)
            found += sum(episode.state is EpisodeState.SUCCEEDED for episode in ended)
            continue
        stored = known.stored.get(group, ())
        await ledger.training.restore(run, group, stored, consumed=group in consumed)
        found += len(stored)
    return found


def _batch(group: str) -> str:
    return group.rsplit("-", 2)[-2]


def _number(group: str) -> int:
    return int(group.rsplit("-", 1)[-1])
