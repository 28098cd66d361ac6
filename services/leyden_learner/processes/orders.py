"""What the leader tells the others, as JSON and bytes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leyden_contracts import Trajectory
from leyden_storage.trajectories import decode_batch, encode_batch

Groups = Sequence[tuple[str, Sequence[Trajectory]]]
"""Group id -> the trajectories of its episodes that succeeded."""


@dataclass(frozen=True, slots=True)
class Order:
    """Something to be done to one trainer by every process."""

    kind: str
    trainer: int
    """Trainers are numbered in the order in which they begin."""
    fields: dict[str, Any] = field(default_factory=dict)
    """JSON."""
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    """Large things, by name."""
    drop: Sequence[int] = ()
    """Trainers that the leader no longer has."""

    def header(self) -> bytes:
        """Return all but the blobs, and how long those are."""
        sizes = {name: len(data) for name, data in self.blobs.items()}
        whole = {"kind": self.kind, "trainer": self.trainer, "fields": self.fields, "drop": list(self.drop)}
        return json.dumps(whole | {"sizes": sizes}).encode()


def split(header: dict[str, Any], body: bytes) -> Order:
    """Return the order of a header and of its blobs, end to end."""
    blobs, start = {}, 0
    for name, size in header["sizes"].items():
        blobs[name] = body[start : start + size]
        start += size
    return Order(header["kind"], header["trainer"], header["fields"], blobs, header["drop"])


def pack_groups(groups: Groups) -> tuple[list[tuple[str, int]], bytes]:
    """Return the groups' ids with the numbers of their trajectories, and all of those as one batch."""
    counts = [(group, len(own)) for group, own in groups]
    return counts, encode_batch([one for _, own in groups for one in own])


def unpack_groups(counts: Sequence[tuple[str, int]], body: bytes) -> Groups:
    """Return what `pack_groups` was given."""
    found = iter(decode_batch(body))
    return [(group, [next(found) for _ in range(count)]) for group, count in counts]


def pack_files(files: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the files of all roles by `role/name`."""
    return {f"{role}/{name}": data for role, own in files.items() for name, data in own.items()}


def unpack_files(blobs: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Return what `pack_files` was given."""
    files: dict[str, dict[str, bytes]] = {}
    for path, data in blobs.items():
        role, _, name = path.partition("/")
        files.setdefault(role, {})[name] = data
    return files
