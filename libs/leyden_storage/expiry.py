"""When a run ended, and which of its trajectories are gone by its retention.

Trajectories are the record of which episodes have succeeded. So before they are deleted, the episodes are recorded
here: the checker misses nothing then, and a ledger that is rebuilt does not run them again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator

from pydantic import TypeAdapter, ValidationError

from leyden_contracts import Episode
from leyden_contracts.base import Message
from leyden_storage.base import ObjectStore, StoreError
from leyden_storage.keys import ended_key, expired_key, expired_part_key

_EPISODES = TypeAdapter(list[Episode])


class Expired(Message):
    """One record: all ended episodes of the run up to then."""

    at: float
    """Seconds since the epoch."""
    folder: str
    parts: int


def note_ended(store: ObjectStore, run: str, at: float) -> float:
    """Record once when the run ended (seconds since the epoch); return what is recorded. Raises StoreError."""
    key = ended_key(run)
    if store.create(key, json.dumps({"ended": at}).encode()):
        return at
    try:
        return float(json.loads(store.get(key))["ended"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{key} is damaged: {error}") from error


def write_expired(store: ObjectStore, run: str, parts: Callable[[], Iterable[bytes]], at: float) -> bool:
    """Record that the trajectories of `parts` are about to be deleted; False if somebody else was faster.

    Args:
        store: the object store.
        run: its id.
        parts: makes JSON lists of episodes. Asked twice: a name of their content makes the record safe to repeat.
        at: now.
    """
    digest = hashlib.sha256()
    for part in parts():
        digest.update(part)
    folder = digest.hexdigest()[:24]
    number, newest = _newest(store, run)
    if newest and newest.folder == folder:
        return True
    count = 0
    for part in parts():
        store.put(expired_part_key(run, folder, count), part)
        count += 1
    record = Expired(at=at, folder=folder, parts=count)
    return store.create(expired_key(run, number + 1), record.model_dump_json().encode())


def expired_episodes(store: ObjectStore, run: str) -> Iterator[Episode]:
    """Yield the ended episodes whose trajectories are, or are about to be, deleted. Raises StoreError."""
    _, newest = _newest(store, run)
    for part in range(newest.parts if newest else 0):
        key = expired_part_key(run, newest.folder if newest else "", part)
        try:
            yield from _EPISODES.validate_json(store.get(key))
        except ValidationError as error:
            raise StoreError(f"{key} is damaged: {error}") from error


def _newest(store: ObjectStore, run: str) -> tuple[int, Expired | None]:
    number = 0
    while store.exists(expired_key(run, number + 1)):
        number += 1
    if not number:
        return 0, None
    try:
        return number, Expired.model_validate_json(store.get(expired_key(run, number)))
    except ValidationError as error:
        raise StoreError(f"{expired_key(run, number)} is damaged: {error}") from error
