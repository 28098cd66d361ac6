"""Packed token ids as three columns of bytes: the low byte of each id, the one above it, and the two highest.

Only the low bytes are noise to zstd, and the high ones are nearly all 0. Apart from each other they take less than half
of the time to compress and to unpack that whole ids take, and a quarter less room.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_ID_BYTES = 4
_PARTS: dict[str, np.dtype[Any]] = {"low": np.dtype("u1"), "middle": np.dtype("u1"), "high": np.dtype("<u2")}
"""From the lowest bits up: what a column takes of each id."""


def id_columns(name: str) -> list[tuple[str, pa.DataType]]:
    """Return the columns that hold the ids called `name`."""
    return [(f"{name}_{part}", pa.large_binary()) for part in _PARTS]


def split_ids(pieces: Sequence[bytes]) -> list[pa.Array]:
    """Return the columns of packed int32 ids, a row a piece. Raises ValueError if there is half an id."""
    sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
    if (sizes % _ID_BYTES).any():
        raise ValueError("packed token ids are cut: their bytes are no multiple of 4")
    ends = np.concatenate(([0], np.cumsum(sizes // _ID_BYTES)))
    ids = np.frombuffer(b"".join(pieces), "<u4")
    parts = (ids.astype("u1"), (ids >> np.uint32(8)).astype("u1"), ids.view("<u2")[1::2])
    return [_column(part, ends) for part in parts]


def join_ids(columns: Sequence[pa.Array]) -> list[bytes]:
    """Return what `split_ids` was given. Raises ValueError if the columns do not fit each other."""
    columns = [column.cast(pa.large_binary()) for column in columns]
    first, *others = (_ends(column) // kind.itemsize for column, kind in zip(columns, _PARTS.values(), strict=True))
    if any(column.null_count for column in columns) or not all(np.array_equal(first, other) for other in others):
        raise ValueError("the parts of token ids differ in length")
    start, size = int(first[0]), int(first[-1] - first[0])
    ids = np.empty((size, _ID_BYTES), "u1")
    ids[:, 0], ids[:, 1], ids.view("<u2")[:, 1] = (
        np.frombuffer(column.buffers()[2] or b"", kind, size, start * kind.itemsize)
        for column, kind in zip(columns, _PARTS.values(), strict=True)
    )
    packed = ids.reshape(-1).data
    places = ((first - start) * _ID_BYTES).tolist()
    return [bytes(packed[start:end]) for start, end in itertools.pairwise(places)]


def _column(part: NDArray[np.generic], ends: NDArray[np.int64]) -> pa.Array:
    buffers = [None, pa.py_buffer(ends * part.itemsize), pa.py_buffer(np.ascontiguousarray(part))]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def _ends(column: pa.Array) -> NDArray[np.int64]:
    """Return where the rows begin and end in the column's data."""
    if not len(column):
        return np.zeros(1, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
