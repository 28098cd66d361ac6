"""The ledger checker: do the invariants I1 to I6 hold for a run? It reads the ledger and the object store, and changes
neither.

I5 is checked as far as stored data can show it: nothing is stored under another run's, episode's or attempt's name.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from pydantic import ValidationError

from leyden_contracts import AdapterManifest, Episode, EpisodeState, Trajectory
from leyden_ledger.archive import Archive
from leyden_ledger.invariants import INVARIANTS, Facts, Violation
from leyden_ledger.ledger import Ledger
from leyden_ledger.store import key
from leyden_storage import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.expiry import expired_episodes
from leyden_storage.keys import adapter_prefix, adapter_versions, manifest_key, trajectories_prefix, trajectory_key
from leyden_storage.trajectories import decode_trajectory
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
    manifests, digests = await asyncio.to_thread(_read_manifests, store, run, spec.trained_role)
    trajectories, unreadable = await asyncio.to_thread(_read_trajectories, store, store.list(trajectories_prefix(run)))
    uploads = await ledger.uploads.registered(run)
    summary = await ledger.runs.summary(run)
    episodes: dict[str, Episode] = {}
    archive = Archive(ledger, store)
    while page := await archive.list(run, start=len(episodes), count=_PAGE):
        episodes |= {episode.id: episode for episode in page}
    # Those that were settled since the store was listed.
    new = await asyncio.to_thread(_read_trajectories, store, _unseen(run, episodes.values(), set(trajectories)))
    trajectories, unreadable = trajectories | new[0], unreadable + new[1]
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
        trajectories=trajectories,
        expired=await asyncio.to_thread(lambda: frozenset(one.id for one in expired_episodes(store, run))),
        manifests=manifests,
        digests=digests,
        replicas=tuple(await ledger.replicas.list()),
        unreadable=unreadable,
    )


def _read_uploads(store: ObjectStore, run: str, batches: Iterable[str]) -> dict[str, int]:
    found = {}
    for batch in batches:
        with suppress(StoreError):
            found[batch] = read_upload(store, run, batch).groups
    return found


def _unseen(run: str, episodes: Iterable[Episode], seen: set[str]) -> Iterator[str]:
    for episode in episodes:
        name = trajectory_key(run, episode.group, episode.id)
        if episode.state is EpisodeState.SUCCEEDED and name not in seen:
            yield name


def _read_trajectories(store: ObjectStore, names: Iterable[str]) -> tuple[dict[str, Trajectory], tuple[Violation, ...]]:
    found: dict[str, Trajectory] = {}
    unreadable = []
    for name in names:
        try:
            found[name] = decode_trajectory(store.get(name))
        except ObjectNotFound:
            continue
        except (ValueError, KeyError) as error:
            unreadable.append(Violation("I2", name, f"the trajectory cannot be read: {error}"))
    return found, tuple(unreadable)


def _read_manifests(
    store: ObjectStore, run: str, role: str
) -> tuple[dict[int, AdapterManifest], dict[int, dict[str, str]]]:
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
    return manifests, digests


def _digest(store: ObjectStore, name: str) -> str:
    try:
        return hashlib.sha256(store.get(name)).hexdigest()
    except ObjectNotFound:
        return "missing"
