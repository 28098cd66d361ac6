"""Uploads of tasks as objects: parts first, then the manifest that commits them.

Parts lie in a folder named after the content, not after the upload: two uploads that fight over one key, or a key that
is used again, can never mix their parts; and parts written twice are the same bytes.
"""

import re
from bisect import bisect_right
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

from pydantic import ValidationError

from leyden_contracts import StoredUpload
from leyden_contracts.task_line import line_id
from leyden_storage.base import ObjectStore, StoreError
from leyden_storage.keys import task_part_key, upload_key, uploads_prefix

MAX_PART_BYTES = 8 * 2**20
MAX_PART_LINES = 10_000
HELD_OUT_BATCH = sha256(b"held-out").hexdigest()[:24]
"""A run has one upload of held-out tasks: scores on different tasks could not be compared."""
_REF = re.compile(r"([0-9a-f]{1,32})/([0-9]{1,9})#([0-9]{1,9})\+([0-9]{1,9})")


class StoredTask(NamedTuple):
    """One task of an upload, without its content."""

    id: str
    ref: str
    """Where its line is, for `task_line`: `{folder}/{part}#{offset}+{length}`, in bytes; at most 64 characters."""
    number: int
    """Its place in the upload, from 0."""


def evaluation_batch(version: int) -> str:
    """Name the upload that evaluates `version` on the held-out tasks. No client's key makes this name."""
    return sha256(b"evaluation:%d" % version).hexdigest()[:24]


def part_folder(upload: StoredUpload) -> str:
    """Return the folder of the upload's parts: one for each content and each way of cutting it."""
    return sha256(f"{upload.digest}{upload.part_lines}".encode()).hexdigest()[:24]


def stored_uploads(store: ObjectStore, run: str) -> list[str]:
    """Return the batches of the run's whole uploads, in order of their names. Raises StoreError."""
    prefix = uploads_prefix(run)
    names = (key.removeprefix(prefix) for key in store.list(prefix))
    return [name.removesuffix(".json") for name in names if "/" not in name and name.endswith(".json")]


def read_upload(store: ObjectStore, run: str, batch: str) -> StoredUpload:
    """Return an upload's manifest. Raises ObjectNotFound, StoreError."""
    key = upload_key(run, batch)
    try:
        return StoredUpload.model_validate_json(store.get(key))
    except ValidationError as error:
        raise StoreError(f"{key} is no manifest of an upload: {error}") from error


def task_line(store: ObjectStore, run: str, ref: str) -> bytes:
    """Return the line of the task at `ref`. Raises ObjectNotFound, StoreError, ValueError."""
    found = _REF.fullmatch(ref)
    if not found:
        raise ValueError(f"{ref!r} is no reference to a task")
    folder, part, offset, length = found.groups()
    return store.get_range(task_part_key(run, folder, int(part)), int(offset), int(length))


class UploadReader:
    """Reads an upload's tasks in order, window by window. Holds one part. Not for use by several threads at once."""

    def __init__(self, store: ObjectStore, run: str, batch: str) -> None:
        """Read the manifest. Raises ObjectNotFound, StoreError."""
        self.upload = read_upload(store, run, batch)
        self._store = store
        self._run = run
        self._folder = part_folder(self.upload)
        self._ends = list(accumulate(self.upload.part_lines))
        self._kept: tuple[int, list[StoredTask]] = (-1, [])

    def tasks(self, start: int, count: int) -> list[StoredTask]:
        """Return `count` tasks from the `start`-th on; fewer at the end. Raises StoreError."""
        found: list[StoredTask] = []
        end = min(start + count, self.upload.groups)
        while start + len(found) < end:
            at = start + len(found)
            part = bisect_right(self._ends, at)
            first = self._ends[part] - self.upload.part_lines[part]
            found += self._part(part, first)[at - first : end - first]
        return found

    def _part(self, part: int, first: int) -> list[StoredTask]:
        if self._kept[0] != part:
            self._kept = (-1, [])
            self._kept = (part, self._read(part, first))
        return self._kept[1]

    def _read(self, part: int, first: int) -> list[StoredTask]:
        key = task_part_key(self._run, self._folder, part)
        tasks, offset, place = [], 0, f"{self._folder}/{part}#"
        try:
            for number, line in enumerate(self._store.get(key).split(b"\n")[:-1], start=first):
                size = len(line)
                tasks.append(StoredTask(line_id(line), f"{place}{offset}+{size}", number))
                offset += size + 1
        except ValueError as error:
            raise StoreError(f"{key} is damaged: {error}") from error
        if len(tasks) != self.upload.part_lines[part]:
            raise StoreError(f"{key} holds {len(tasks)} tasks where its manifest says {self.upload.part_lines[part]}")
        return tasks
