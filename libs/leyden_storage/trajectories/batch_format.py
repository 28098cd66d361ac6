"""A batch of trajectories as one Parquet file: a row a call, packed bytes columns, zstd.

An episode's rows follow each other; the first of them has the `head`, which is all of the trajectory but its calls, as
JSON. An episode without calls has one row, with `number` 0. Prompts are merged (`prefixes`). The same trajectories
make the same bytes. Heads, calls and tokens are columns of their own: who needs no tokens reads none.
"""

import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from leyden_contracts import Trajectory, Transition
from leyden_storage.trajectories.prefixes import merge_prompts, restore_prompts

FORMAT = "1"
_FORMAT_KEY = b"leyden.trajectories"

_HEAD_COLUMNS = [("episode", pa.string()), ("head", pa.string())]
_CALL_COLUMNS = [
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
_TOKEN_COLUMNS = [
    ("base_call", pa.int32()),
    ("shared_tokens", pa.int32()),
    ("prompt_rest", pa.binary()),
    ("response_token_ids", pa.binary()),
    ("response_logprobs", pa.binary()),
]
_SCHEMA = pa.schema([*_HEAD_COLUMNS, *_CALL_COLUMNS, *_TOKEN_COLUMNS])
_FIELDS = [name for name, _ in _CALL_COLUMNS]
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["episode", "role", "finish_reason", "replica", "parent", "agent"],
    # Of packed tokens nobody asks the least and the greatest; and Parquet's own types say enough.
    "write_statistics": False,
    "store_schema": False,
    # What zstd cannot make smaller it stores as it is: without this, nobody would notice that it has changed.
    "write_page_checksum": True,
}
_NO_CALL: dict[str, Any] = {
    **dict.fromkeys(("number", "policy_version", "start_ns", "end_ns", "base_call", "shared_tokens"), 0),
    **dict.fromkeys(("role", "finish_reason", "response_id", "replica", "parent", "agent"), ""),
    **dict.fromkeys(("prompt_rest", "response_token_ids", "response_logprobs"), b""),
    "temperature": 0.0,
}
_IDENTITY = ("run", "episode", "attempt")
_TOKENS = ("prompt_token_ids", "response_token_ids", "response_logprobs")
_CALL_FIELDS = set(Transition.model_fields)
_new, _set = Transition.__new__, object.__setattr__


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


def encode_batch(trajectories: Iterable[Trajectory]) -> bytes:
    """Return the trajectories, which may be none, as one Parquet file."""
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    for trajectory in trajectories:
        _add(columns, trajectory)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, _SCHEMA, **_OPTIONS) as writer:
        writer.write_table(pa.Table.from_pydict(columns, schema=_SCHEMA))
        writer.add_key_value_metadata({_FORMAT_KEY: FORMAT.encode()})
    return buffer.getvalue()


def decode_batch(
    source: bytes | io.RawIOBase, detail: Detail = Detail.TOKENS, wanted: Callable[[str], bool] | None = None
) -> list[Trajectory]:
    """Return the trajectories of a batch, or of its episodes that are `wanted`. Raises UnreadableBatch."""
    try:
        whole = pa.BufferReader(source) if isinstance(source, bytes) else source
        file = pq.ParquetFile(whole, page_checksum_verification=True)
        _check_format((file.metadata.metadata or {}).get(_FORMAT_KEY))
        table = _rows(file, detail, wanted)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
        return list(_trajectories(columns, detail))
    except UnreadableBatch:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableBatch(f"the batch of trajectories cannot be read: {error}") from error


def _add(columns: dict[str, list[Any]], trajectory: Trajectory) -> None:
    calls = trajectory.transitions
    rows = max(len(calls), 1)
    # Not pydantic's own JSON: it refuses half of a surrogate pair and drops infinities, and an output may hold both.
    head = json.dumps(trajectory.model_dump(exclude={"transitions"}), separators=(",", ":"))
    columns["episode"] += [trajectory.episode] * rows
    columns["head"] += [head, *[None] * (rows - 1)]
    if not calls:
        for name, value in _NO_CALL.items():
            columns[name].append(value)
        return
    for name in (*_FIELDS, "response_token_ids", "response_logprobs"):
        columns[name] += [getattr(call, name) for call in calls]
    merged = merge_prompts((call.prompt_token_ids, call.response_token_ids) for call in calls)
    for name, part in zip(("base_call", "shared_tokens", "prompt_rest"), zip(*merged, strict=True), strict=True):
        columns[name] += part


def _check_format(found: bytes | None) -> None:
    if found is None:
        raise UnreadableBatch("this is a Parquet file, but no batch of trajectories")
    if found != FORMAT.encode():
        raise UnreadableBatch(
            f"this batch of trajectories is of format {found.decode(errors='replace')!r}, and this version of Leyden "
            f"reads format {FORMAT!r}: read it with the version that wrote it, or a newer one"
        )


def _rows(file: pq.ParquetFile, detail: Detail, wanted: Callable[[str], bool] | None) -> pa.Table:
    kinds = [_HEAD_COLUMNS, _CALL_COLUMNS, _TOKEN_COLUMNS][: detail.value]
    names = [name for kind in kinds for name, _ in kind]
    if wanted is None:
        return file.read(columns=names)
    keep = [wanted(episode) for episode in file.read(columns=["episode"]).column("episode").to_pylist()]
    # Tokens of a batch that holds nothing of use are not read.
    return file.read(columns=names).filter(pa.array(keep, pa.bool_())) if any(keep) else _SCHEMA.empty_table()


def _trajectories(columns: dict[str, list[Any]], detail: Detail) -> Iterator[Trajectory]:
    heads = columns["head"]
    starts = [row for row, head in enumerate(heads) if head is not None]
    for start, end in itertools.pairwise([*starts, len(heads)]):
        head = json.loads(heads[start])
        has_calls = detail is not Detail.HEADS and columns["number"][start] > 0
        steps = _calls(columns, head, detail, start, end) if has_calls else ()
        yield Trajectory.model_validate({**head, "transitions": steps})


def _calls(
    columns: dict[str, list[Any]], head: dict[str, Any], detail: Detail, start: int, end: int
) -> tuple[Transition, ...]:
    identity = (head["run"], head["episode"], head["attempt"])
    plain = [columns[name][start:end] for name in _FIELDS]
    tokens = _tokens(columns, start, end) if detail is Detail.TOKENS else [[b""] * (end - start)] * len(_TOKENS)
    names = (*_IDENTITY, *_FIELDS, *_TOKENS)
    return tuple(_call(dict(zip(names, (*identity, *row), strict=True))) for row in zip(*plain, *tokens, strict=True))


def _tokens(columns: dict[str, list[Any]], start: int, end: int) -> list[list[bytes]]:
    """Return prompt ids, response ids and logprobs, each by call."""
    names = ("base_call", "shared_tokens", "prompt_rest", "response_token_ids", "response_logprobs")
    bases, shared, rests, responses, logprobs = (columns[name][start:end] for name in names)
    return [restore_prompts(zip(bases, shared, rests, strict=True), responses), responses, logprobs]


def _call(fields: dict[str, Any]) -> Transition:
    """Return a call, whose fields are all there, without validating them: that was done when it was made.

    It does what pydantic's `model_construct` does, which takes most of the time of reading a batch.
    """
    call = _new(Transition)
    _set(call, "__dict__", fields)
    _set(call, "__pydantic_fields_set__", _CALL_FIELDS)
    _set(call, "__pydantic_extra__", None)
    _set(call, "__pydantic_private__", None)
    return call
