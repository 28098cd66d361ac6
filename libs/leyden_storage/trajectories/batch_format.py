"""A batch of trajectories as one Parquet file: a row a call, packed bytes columns, compressed.

An episode's rows follow each other; the first of them has the `head`, which is all of the trajectory but its calls, as
JSON. An episode without calls has one row, with `number` 0. Prompts are merged (`prefixes`), and token ids are split
into bytes (`id_columns`). The same trajectories make the same bytes. Heads, calls and tokens are columns of their own:
who needs no tokens reads none.
"""

from enum import Enum

import pyarrow as pa

from leyden_storage.trajectories.id_columns import id_columns

FORMAT = "3"
FORMAT_KEY = b"leyden.trajectories"
"""In the file's own metadata: which format it is of."""

HEAD_COLUMNS = [("episode", pa.string()), ("head", pa.string())]
CALL_COLUMNS = [
    ("number", pa.int32()),
    ("role", pa.string()),
    ("policy_version", pa.int32()),
    ("temperature", pa.float64()),
    ("finish_reason", pa.string()),
    ("response_id", pa.string()),
    ("replica", pa.string()),
    ("start_ns", pa.int64()),
    ("end_ns", pa.int64()),
    ("parent", pa.string()),
    ("agent", pa.string()),
]
TOKEN_COLUMNS = [
    ("base_call", pa.int32()),
    ("shared_tokens", pa.int32()),
    *id_columns("prompt_rest"),
    *id_columns("response"),
    ("response_logprobs", pa.binary()),
]
SCHEMA = pa.schema([*HEAD_COLUMNS, *CALL_COLUMNS, *TOKEN_COLUMNS])


class UnreadableBatch(ValueError):
    """This object is no batch of trajectories that this version of Leyden can read."""


class Detail(Enum):
    """How much of a trajectory to read."""

    HEADS = 1
    """`transitions` is empty."""
    CALLS = 2
    """The calls, their tokens and logprobs empty."""
    TOKENS = 3
    """Everything."""
