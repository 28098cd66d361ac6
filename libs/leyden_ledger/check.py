"""The ledger checker: do the invariants I1 to I6 hold for a run? It reads the ledger and the object store, and changes
neither.

I5 is checked as far as stored data can show it: nothing is stored under another run's, episode's or attempt's name.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from leyden_contracts import AdapterManifest, Episode, EpisodeState, Trajectory
from leyden_ledger.archive import Archive
from leyden_ledger.invariants import INVARIANTS, Adapters, Facts, Violation
from leyden_ledger.ledger import Ledger
from leyden_ledger.store import key
from leyden_storage import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.expiry import expired_episodes
from leyden_storage.keys import adapter_prefix, adapter_versions, manifest_key, trajectory_batch_key
from leyden_storage.trajectories import Detail, UnreadableBatch, decode_batch, stored_batches
from leyden_storage.uploads import read_upload

__all__ = ["Violation", "check_run"]
_PAGE = 2000


async def check_run(ledger: Ledger, store: ObjectStore, run: str) -> list[Violation]:
    """Return every violation in `run`, which may be under way. Raises RunNotFound, StoreError."""
    facts = await _gather(ledger, store, run)
    return [*facts.unreadable, *(violation for holds in INVARIANTS for violation in holds(facts))]


async def _gather(ledger: Ledger, store: ObjectStore, run: str) -> Facts:
    spec = await ledger.runs.get(run)
    # In the order in which things are made, backwards: what one part refers to is then there when it is looked up.
    published = (await ledger.runs.summary(run)).version_published
    # The lead role first: what another role has beyond it is not committed yet.
    roles = sorted(spec.trained_roles, key=lambda role: role != spec.lead_role)
    adapters = {role: await asyncio.to_thread(_read_manifests, store, run, role) for role in roles}
    stored = _Stored()
    await asyncio.to_thread(lambda: stored.read(store, run, stored_batches(store, run)))
    uploads = await ledger.uploads.registered(run)
    summary = await ledger.runs.summary(run)
    episodes: dict[str, Episode] = {}
    archive = Archive(ledger, store)
    while page := await archive.list(run, start=len(episodes), count=_PAGE):
        episodes |= {episode.id: episode for episode in page}
    # Those that were settled since the store was listed.
    named = {one.batch for one in episodes.values() if one.batch and one.state is EpisodeState.SUCCEEDED}
    await asyncio.to_thread(stored.read, store, run, sorted(named - stored.seen))
    pipe = ledger.redis.pipeline(transaction=False)
    for episode in episodes:
        pipe.hexists(key(run, f"e:{episode}"), "reward")
    rewarded = frozenset(episode for episode, has in zip(episodes, await pipe.execute(), strict=True) if has)
    return Facts(
        spec=spec,
        summary=summary,
        published=published,
        uploads=uploads,
        stored_uploads=await asyncio.to_thread(_read_uploads, store, run, uploads),
        episodes=episodes,
        leased=frozenset(await ledger.redis.zrange(key(run, "leases"), 0, -1)),
        rewarded=rewarded,
        trajectories=stored.trajectories,
        places=stored.places,
        expired=await asyncio.to_thread(lambda: frozenset(one.id for one in expired_episodes(store, run))),
        adapters=adapters,
        replicas=tuple(await ledger.replicas.list()),
        unreadable=tuple(stored.wrong),
    )


def _read_uploads(store: ObjectStore, run: str, batches: Iterable[str]) -> dict[str, int]:
    found = {}
    for batch in batches:
        with suppress(StoreError):
            found[batch] = read_upload(store, run, batch).groups
    return found


@dataclass(slots=True)
class _Stored:
    """The trajectories of the batches that have been read."""

    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    wrong: list[Violation] = field(default_factory=list)

    def read(self, store: ObjectStore, run: str, batches: Iterable[str]) -> None:
        """Add these batches, in order. Raises StoreError."""
        for batch in batches:
            self.seen.add(batch)
            name = trajectory_batch_key(run, batch)
            try:
                data = store.get(name)
                decode_batch(data)  # the tokens are not kept, but they must be readable
                found = decode_batch(data, Detail.CALLS)
            except ObjectNotFound:
                continue
            except UnreadableBatch as error:
                self.wrong.append(Violation("I2", name, str(error)))
                continue
            for trajectory in found:
                self._add(trajectory, batch)

    def _add(self, new: Trajectory, batch: str) -> None:
        known = self.trajectories.get(new.episode)
        if known and known.attempt == new.attempt:
            places = f"{self.places[new.episode]} and {batch}"
            self.wrong.append(Violation("I2", new.episode, f"attempt {new.attempt} is stored twice, in {places}"))
        if known is None or known.attempt < new.attempt:
            self.trajectories[new.episode], self.places[new.episode] = new, batch


def _read_manifests(store: ObjectStore, run: str, role: str) -> Adapters:
    manifests: dict[int, AdapterManifest] = {}
    digests: dict[int, dict[str, str]] = {}
    for version in adapter_versions(store, run, role):
        try:
            manifests[version] = AdapterManifest.model_validate_json(store.get(manifest_key(run, role, version)))
        except ValidationError:
            digests[version] = {}
            continue
        prefix = adapter_prefix(run, role, version)
        digests[version] = {name: _digest(store, prefix + name) for name in manifests[version].files}
    return Adapters(manifests, digests)


def _digest(store: ObjectStore, name: str) -> str:
    try:
        return hashlib.sha256(store.get(name)).hexdigest()
    except ObjectNotFound:
        return "missing"
