"""A run's raw spans: segments as the collectors wrote them, or merged into few large objects when the run has ended.

A merged object is a plain zstd file of several frames: unpacked as a whole, it is one OTLP message with all spans, as
concatenated protobuf messages are. A skippable frame at its beginning says which segments each frame holds. So one
conditional create both stores the spans and says which segments are in it; only then are these deleted. Whatever is
cut off leaves a segment in both forms at most, and readers count it once, by its name.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from leyden_storage.base import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.keys import merged_segments_key, merged_segments_prefix, segments_prefix

_SKIPPABLE = struct.Struct("<II")
"""Magic number and length of a frame that zstd's readers skip (RFC 8878, section 3.1.2)."""
_MAGIC = 0x184D2A5E
_FRAME_BYTES = 4 * 2**20
MERGED_BYTES = 32 * 2**20
"""A merged object is closed when it has as many: whoever writes one holds it in memory."""
_AT_ONCE = 8

Frames = list[list[tuple[str, int]]]
"""Of each frame: name and length of its segments."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became one merged object."""

    segments: int
    bytes: int
    """Of these segments, before."""


@dataclass
class _Draft:
    """A merged object in the making."""

    data: list[bytes] = field(default_factory=list)
    frames: list[dict[str, object]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    raw: int = 0
    size: int = 0

    def add(self, names: list[str], segments: list[bytes], keys: list[str]) -> None:
        """Add a frame."""
        content = b"".join(segments)
        frame = pa.compress(content, codec="zstd", asbytes=True)
        self.data.append(frame)
        lengths = [[name, len(segment)] for name, segment in zip(names, segments, strict=True)]
        self.frames.append({"bytes": len(frame), "segments": lengths})
        self.keys += keys
        self.raw += len(content)
        self.size += len(frame)

    def encode(self) -> bytes:
        """Return the object."""
        index = json.dumps(self.frames, separators=(",", ":")).encode()
        return b"".join([_SKIPPABLE.pack(_MAGIC, len(index)), index, *self.data])


def loose_segments(store: ObjectStore, run: str) -> Iterator[str]:
    """Yield the keys of segments that are objects of their own. Raises StoreError."""
    merged = merged_segments_prefix(run)
    return (key for key in store.list(segments_prefix(run)) if not key.startswith(merged))


def read_segments(store: ObjectStore, run: str) -> Iterator[bytes]:
    """Yield each of the run's segments once, as OTLP protobuf; while they are being merged, too. Raises StoreError."""
    seen = set()
    for key in loose_segments(store, run):
        with suppress(ObjectNotFound):  # it has been merged meanwhile
            segment = store.get(key)
            seen.add(_name(run, key))
            yield segment
    # After the others: what was not there any more is in an object that is there by now.
    for key in list(store.list(merged_segments_prefix(run))):
        with suppress(ObjectNotFound):  # its time has run out
            yield from _read_merged(store, key, seen)


def merge_segments(
    store: ObjectStore, run: str, keys: Sequence[str], most_bytes: int = MERGED_BYTES
) -> Iterator[Merged]:
    """Merge the segments `keys`, which no attempt under way needs; yield after each object that was made of them.

    Any number may do this at once, and be cut off anywhere: the number of an object is taken by one of them, and the
    others stop. Raises StoreError.
    """
    known, last = _merged_already(store, run)
    rest = [key for key in keys if _name(run, key) not in known]
    with ThreadPoolExecutor(_AT_ONCE, "merge") as pool:
        # What somebody was cut off from deleting.
        list(pool.map(store.delete, [key for key in keys if _name(run, key) in known]))
        while len(rest) > 1:
            try:
                draft = _fill(store, run, rest, most_bytes, pool)
            except ObjectNotFound:
                return  # somebody else merges them
            last += 1
            if not store.create(merged_segments_key(run, last), draft.encode()):
                return
            list(pool.map(store.delete, draft.keys))
            rest = rest[len(draft.keys) :]
            yield Merged(len(draft.keys), draft.raw)


def _fill(store: ObjectStore, run: str, keys: Sequence[str], most_bytes: int, pool: ThreadPoolExecutor) -> _Draft:
    draft, segments, names, taken = _Draft(), list[bytes](), list[str](), list[str]()
    for start in range(0, len(keys), _AT_ONCE):
        part = keys[start : start + _AT_ONCE]
        segments += pool.map(store.get, part)
        names += [_name(run, key) for key in part]
        taken += part
        if sum(map(len, segments)) >= _FRAME_BYTES:
            draft.add(names, segments, taken)
            segments, names, taken = [], [], []
            if draft.size >= most_bytes:
                return draft
    if segments:
        draft.add(names, segments, taken)
    return draft


def _merged_already(store: ObjectStore, run: str) -> tuple[set[str], int]:
    """Return the names of the segments in merged objects, and the last one's number."""
    known: set[str] = set()
    last = 0
    for key in store.list(merged_segments_prefix(run)):
        known.update(name for frame in _index(store, key)[0] for name, _ in frame)
        last = int(key.removeprefix(merged_segments_prefix(run)).partition(".")[0])
    return known, last


def _read_merged(store: ObjectStore, key: str, seen: set[str]) -> Iterator[bytes]:
    frames, places = _index(store, key)
    for segments, (offset, size) in zip(frames, places, strict=True):
        content = _unpack(key, store.get_range(key, offset, size), sum(length for _, length in segments))
        at = 0
        for name, length in segments:
            if name not in seen:
                seen.add(name)
                yield content[at : at + length]
            at += length


def _index(store: ObjectStore, key: str) -> tuple[Frames, list[tuple[int, int]]]:
    """Return what the frames hold, and the offset and size of each."""
    try:
        magic, length = _SKIPPABLE.unpack(store.get_range(key, 0, _SKIPPABLE.size))
        if magic != _MAGIC:
            raise ValueError("it does not begin with its index")
        index = json.loads(store.get_range(key, _SKIPPABLE.size, length))
        frames = [[(str(name), int(size)) for name, size in frame["segments"]] for frame in index]
        sizes = [int(frame["bytes"]) for frame in index]
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise StoreError(f"{key} is damaged: {error}") from error
    start = _SKIPPABLE.size + length
    return frames, [(start + sum(sizes[:number]), size) for number, size in enumerate(sizes)]


def _unpack(key: str, frame: bytes, length: int) -> bytes:
    try:
        return pa.decompress(frame, decompressed_size=length, codec="zstd", asbytes=True)
    except (OSError, ValueError) as error:
        raise StoreError(f"{key} is damaged: {error}") from error


def _name(run: str, key: str) -> str:
    return key.removeprefix(segments_prefix(run)).removesuffix(".otlp")
