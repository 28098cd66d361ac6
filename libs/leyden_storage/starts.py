"""Uploaded data of a run's start as objects: parts first, then the manifest that commits them. Written once."""

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from leyden_contracts import StartRefusal, StoredStart
from leyden_storage.base import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.keys import start_key, start_part_key, start_refusal_key


def write_start(store: ObjectStore, run: str, stored: StoredStart, parts: Iterable[bytes]) -> StoredStart:
    """Write the data unless the run has some; return what the run has then, which may be other data.

    Raises StoreError.
    """
    if found := read_start(store, run):
        return found
    for number, part in enumerate(parts):
        # Plain writes: who else writes to this folder writes the same bytes.
        store.put(start_part_key(run, _folder(stored), number), part)
    if store.create(start_key(run), stored.model_dump_json().encode()):
        return stored
    found = read_start(store, run)
    if found is None:
        raise StoreError(f"{start_key(run)} was there and is gone")
    return found


def read_start(store: ObjectStore, run: str) -> StoredStart | None:
    """Return the data's manifest; None if there is no data yet. Raises StoreError."""
    key = start_key(run)
    try:
        return StoredStart.model_validate_json(store.get(key))
    except ObjectNotFound:
        return None
    except ValidationError as error:
        raise StoreError(f"{key} is no manifest of start data: {error}") from error


def start_lines(store: ObjectStore, run: str, stored: StoredStart) -> Iterator[bytes]:
    """Yield the lines, in order, with a part in memory at a time. Raises StoreError."""
    for number, count in enumerate(stored.part_lines):
        key = start_part_key(run, _folder(stored), number)
        lines = store.get(key).split(b"\n")[:-1]
        if len(lines) != count:
            raise StoreError(f"{key} holds {len(lines)} lines where its manifest says {count}")
        yield from lines


def write_refusal(store: ObjectStore, run: str, refusal: StartRefusal) -> None:
    """Say why the start could not be made; the last one counts. Raises StoreError."""
    store.put(start_refusal_key(run), refusal.model_dump_json().encode())


def read_refusal(store: ObjectStore, run: str) -> StartRefusal | None:
    """Return why the start could not be made, if somebody said so. Raises StoreError."""
    try:
        return StartRefusal.model_validate_json(store.get(start_refusal_key(run)))
    except ObjectNotFound:
        return None


def _folder(stored: StoredStart) -> str:
    return stored.digest[:24]
