"""Trajectories, many to an object: how they are laid out (`batch_format`), and how they are read (`reading`).

Why in batches, and why each is still stored exactly once: infra/docs/decisions/0010-trajectories-in-batches.md.
"""

from leyden_storage.trajectories.batch_format import Detail, UnreadableBatch
from leyden_storage.trajectories.cached import BatchCache
from leyden_storage.trajectories.decoding import decode_batch
from leyden_storage.trajectories.encoding import encode_batch
from leyden_storage.trajectories.reading import (
    TrajectoryNotFound,
    read_batch,
    read_trajectory,
    stored_batches,
    stored_heads,
    stored_trajectories,
    write_batch,
)

__all__ = [
    "BatchCache",
    "Detail",
    "TrajectoryNotFound",
    "UnreadableBatch",
    "decode_batch",
    "encode_batch",
    "read_batch",
    "read_trajectory",
    "stored_batches",
    "stored_heads",
    "stored_trajectories",
    "write_batch",
]
