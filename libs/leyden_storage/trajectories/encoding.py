"""Trajectories -> a batch; see `batch_format`."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from leyden_contracts import Trajectory, Transition
from leyden_storage.trajectories.batch_format import CALL_COLUMNS, FORMAT, FORMAT_KEY, SCHEMA
from leyden_storage.trajectories.id_columns import split_ids
from leyden_storage.trajectories.prefixes import merge_prompts


def _codec(column: str) -> str:
    """Return what makes a column small without making it slow to read."""
    if column.endswith(("_middle", "_high")):
        # zstd would make them a third smaller, and take twice as long to unpack them.
        return "lz4"
    # Logprobs are noise: zstd would save a tenth of them, and take three times as long as a copy.
    return "none" if column == "response_logprobs" else "zstd"


_CODECS = {name: _codec(name) for name in SCHEMA.names}
_OPTIONS: dict[str, Any] = {
    "compression": _CODECS,
    "compression_level": {name: 1 for name, codec in _CODECS.items() if codec == "zstd"},
    "use_dictionary": ["episode", "role", "finish_reason", "replica", "parent", "agent"],
    # Of packed tokens nobody asks the least and the greatest; and Parquet's own types say enough.
    "write_statistics": False,
    "store_schema": False,
    # Nobody would notice otherwise that what is stored as it is has changed.
    "write_page_checksum": True,
}
_NO_CALL = Transition.model_construct(
    number=0,
    role="",
    policy_version=0,
    prompt_token_ids=b"",
    response_token_ids=b"",
    response_logprobs=b"",
    temperature=0.0,
    finish_reason="",
    response_id="",
    replica="",
)
"""The row of an episode without calls."""


def encode_batch(trajectories: Iterable[Trajectory]) -> bytes:
    """Return the trajectories, which may be none, as one Parquet file."""
    some = list(trajectories)
    rows = [one.transitions or (_NO_CALL,) for one in some]
    calls = [call for episode in rows for call in episode]
    arrays = [*_head_arrays(some), *_call_arrays(calls), *_prompt_arrays(rows), *_reply_arrays(calls)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, **_OPTIONS) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
        writer.add_key_value_metadata({FORMAT_KEY: FORMAT.encode()})
    return sink.getvalue().to_pybytes()


def _head_arrays(trajectories: Iterable[Trajectory]) -> list[pa.Array]:
    episodes: list[str] = []
    heads: list[str | None] = []
    for one in trajectories:
        rows = max(len(one.transitions), 1)
        # Not pydantic's own JSON: it refuses half a surrogate pair and drops infinities, and an output may hold both.
        head = json.dumps(one.model_dump(exclude={"transitions"}), separators=(",", ":"))
        episodes += [one.episode] * rows
        heads += [head, *[None] * (rows - 1)]
    return [pa.array(episodes, pa.string()), pa.array(heads, pa.string())]


def _call_arrays(calls: Sequence[Transition]) -> list[pa.Array]:
    return [pa.array([getattr(call, name) for call in calls], kind) for name, kind in CALL_COLUMNS]


def _prompt_arrays(rows: Iterable[Sequence[Transition]]) -> list[pa.Array]:
    merged = [
        prompt
        for calls in rows
        for prompt in merge_prompts((call.prompt_token_ids, call.response_token_ids) for call in calls)
    ]
    bases, shared = ([getattr(prompt, name) for prompt in merged] for name in ("base", "shared"))
    return [pa.array(bases, pa.int32()), pa.array(shared, pa.int32()), *split_ids([prompt.rest for prompt in merged])]


def _reply_arrays(calls: Sequence[Transition]) -> list[pa.Array]:
    logprobs = pa.array([call.response_logprobs for call in calls], pa.binary())
    return [*split_ids([call.response_token_ids for call in calls]), logprobs]
