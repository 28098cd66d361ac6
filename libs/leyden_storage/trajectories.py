"""Trajectories as Parquet objects: a row a transition, token ids and logprobs as packed bytes columns, zstd."""

import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from leyden_contracts import Trajectory, Transition
from leyden_storage.base import ObjectStore
from leyden_storage.keys import trajectories_prefix, trajectory_key

_COLUMNS = pa.schema(
    [
        ("number", pa.int32()),
        ("role", pa.string()),
        ("policy_version", pa.int32()),
        ("prompt_token_ids", pa.binary()),
        ("response_token_ids", pa.binary()),
        ("response_logprobs", pa.binary()),
        ("temperature", pa.float64()),
        ("finish_reason", pa.string()),
        ("response_id", pa.string()),
        ("replica", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
    ]
)
_HEAD = b"leyden.trajectory"


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Return the trajectory as one Parquet file; what is not a column is JSON in the file's metadata."""
    head = trajectory.model_dump_json(exclude={"transitions"}).encode()
    rows = [{name: getattr(step, name) for name in _COLUMNS.names} for step in trajectory.transitions]
    table = pa.Table.from_pylist(rows, schema=_COLUMNS.with_metadata({_HEAD: head}))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def decode_trajectory(data: bytes) -> Trajectory:
    """Return what `encode_trajectory` was given. Raises pyarrow.ArrowInvalid or ValueError on anything else."""
    table = pq.read_table(io.BytesIO(data))
    head = json.loads(table.schema.metadata[_HEAD])
    identity = {name: head[name] for name in ("run", "episode", "attempt")}
    steps = tuple(Transition.model_construct(**identity, **row) for row in table.to_pylist())
    return Trajectory.model_validate({**head, "transitions": steps})


def write_trajectory(store: ObjectStore, trajectory: Trajectory) -> bool:
    """Store the trajectory once; False if this episode already has one."""
    key = trajectory_key(trajectory.run, trajectory.group, trajectory.episode)
    return store.create(key, encode_trajectory(trajectory))


def read_trajectory(store: ObjectStore, run: str, group: str, episode: str) -> Trajectory:
    """Return the episode's trajectory. Raises ObjectNotFound."""
    return decode_trajectory(store.get(trajectory_key(run, group, episode)))


def stored_trajectories(store: ObjectStore, run: str) -> Iterator[Trajectory]:
    """Yield the run's trajectories, by group and episode, a few at a time in memory. Raises StoreError, ValueError."""
    for name in store.list(trajectories_prefix(run)):
        yield decode_trajectory(store.get(name))
