"""Stored trajectories as files that others read: JSON lines, Parquet, a folder for `datasets.load_dataset`.

Two exports of the same trajectories are the same bytes: rows are by group and episode, keys are sorted, and nothing
tells the time. To sort many with little memory, they pass through a temporary file.
"""

import io
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import to_json

from leyden_contracts import Purpose, RewardVersion, Trajectory, Verdict
from leyden_task_api.export_rows import CALLS, CONVERSATIONS, calls_table, conversations, conversations_table
from leyden_task_api.views import trajectory_view

_IN_MEMORY = 32 * 2**20
_TABLE_BYTES = 4 * 2**20
"""Of tokens in one row group."""
_SHARD_BYTES = 16 * 2**20
_NUMBERS = {int, float}
_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: train/*.parquet
tags:
- leyden
---

# {run}

{what} of run `{run}`, exported by Leyden. `datasets.load_dataset("path/of/this/folder")` loads them.
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which trajectories are wanted."""

    purpose: Purpose | None = None
    verdict: Verdict | None = None
    min_reward: float | None = None
    text_only: bool = False
    """Only text-only trajectories, each row a conversation."""

    def holds(self, trajectory: Trajectory) -> bool:
        """Say whether `trajectory` is wanted."""
        verdict = Verdict.TEXT_ONLY if self.text_only else self.verdict
        return (
            self.purpose in (None, trajectory.purpose)
            and verdict in (None, trajectory.verdict)
            and (self.min_reward is None or trajectory.reward >= self.min_reward)
        )


def rescored(trajectories: Iterable[Trajectory], rewards: RewardVersion | None) -> Iterator[Trajectory]:
    """Yield `trajectories` with the rewards of a version, without those that it has no reward for."""
    if rewards is None:
        yield from trajectories
        return
    lines = {(line.episode, line.attempt): line for line in rewards.lines}
    for trajectory in trajectories:
        if line := lines.get((trajectory.episode, trajectory.attempt)):
            yield trajectory.model_copy(update={"reward": line.reward, "rewards": line.rewards})


class Ordered:
    """Trajectories by group and episode, on disk if they are many. Iterate as often as you like; then close it."""

    def __init__(self, trajectories: Iterable[Trajectory]) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (see `close`)
        self._places: list[tuple[str, str, int, int, int]] = []
        try:
            for trajectory in trajectories:
                text = trajectory.model_dump_json().encode()
                packed = pa.compress(text, codec="zstd", asbytes=True)
                place = (self._file.tell(), len(packed), len(text))
                self._file.write(packed)
                self._places.append((trajectory.group, trajectory.episode, *place))
        except BaseException:
            self.close()
            raise
        self._places.sort()

    def __iter__(self) -> Iterator[Trajectory]:
        for _, _, offset, size, length in self._places:
            self._file.seek(offset)
            text = pa.decompress(self._file.read(size), decompressed_size=length, codec="zstd", asbytes=True)
            yield Trajectory.model_validate_json(text)

    def close(self) -> None:
        """Drop them."""
        self._file.close()


def as_jsonl(run: str, trajectories: Iterable[Trajectory], text_only: bool) -> Iterator[bytes]:
    """Yield a line a trajectory, token ids as lists; for text-only ones a line a conversation."""
    for trajectory in trajectories:
        rows = conversations(trajectory) if text_only else [trajectory_view(trajectory).model_dump(mode="json")]
        for row in rows:
            # Several times faster than `json` on lists of numbers.
            yield to_json(_sorted(row)) + b"\n"


def as_parquet(run: str, trajectories: Iterable[Trajectory], text_only: bool) -> Iterator[bytes]:
    """Yield one Parquet file: a row a call, or a conversation."""
    sink = _Sink()
    with pq.ParquetWriter(sink, CONVERSATIONS if text_only else CALLS, compression="zstd") as writer:
        for table in _tables(trajectories, text_only):
            writer.write_table(table)
            yield sink.drain()
    yield sink.drain()


def as_datasets(run: str, trajectories: Iterable[Trajectory], text_only: bool) -> Iterator[bytes]:
    """Yield a tar of `README.md` and `train/*.parquet`: the layout that `datasets.load_dataset(folder)` reads."""
    sink = _Sink()
    what = "Conversations of text-only trajectories" if text_only else "The calls of the trajectories"
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        _add(tar, "README.md", _CARD.format(run=run, what=what).encode())
        for number, shard in enumerate(_shards(trajectories, text_only)):
            _add(tar, f"train/part-{number:05d}.parquet", shard)
            yield sink.drain()
    yield sink.drain()


FORMATS: dict[str, tuple[Callable[[str, Iterable[Trajectory], bool], Iterator[bytes]], str]] = {
    "jsonl": (as_jsonl, "application/x-ndjson"),
    "parquet": (as_parquet, "application/vnd.apache.parquet"),
    "datasets": (as_datasets, "application/x-tar"),
}
"""Name -> what writes it, and its media type."""


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return value if set(map(type, value)) <= _NUMBERS else [_sorted(one) for one in value]
    return value


class _Sink(io.RawIOBase):
    """Takes what a writer writes, until it is sent on."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def drain(self) -> bytes:
        """Return what was written since the last time."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _tables(trajectories: Iterable[Trajectory], text_only: bool) -> Iterator[pa.Table]:
    table = conversations_table if text_only else calls_table
    held: list[Trajectory] = []
    size = 0
    for trajectory in trajectories:
        held.append(trajectory)
        size += 1000 + sum(len(call.prompt_token_ids + call.response_token_ids) for call in trajectory.transitions)
        size += sum(len(text.messages + text.reply) for text in trajectory.texts)
        if size >= _TABLE_BYTES:
            yield table(held)
            held, size = [], 0
    if held:
        yield table(held)


def _shards(trajectories: Iterable[Trajectory], text_only: bool) -> Iterator[bytes]:
    """Yield whole Parquet files; one without rows if there is nothing."""
    schema = CONVERSATIONS if text_only else CALLS
    buffer, rows, written = io.BytesIO(), 0, False
    writer = pq.ParquetWriter(buffer, schema, compression="zstd")
    for table in _tables(trajectories, text_only):
        writer.write_table(table)
        rows += table.num_rows
        if buffer.tell() >= _SHARD_BYTES:
            writer.close()
            yield buffer.getvalue()
            buffer, rows, written = io.BytesIO(), 0, True
            writer = pq.ParquetWriter(buffer, schema, compression="zstd")
    writer.close()
    if rows or not written:
        yield buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
