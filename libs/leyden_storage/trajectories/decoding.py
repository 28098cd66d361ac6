"""A batch -> trajectories; see `batch_format`."""

import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from leyden_contracts import Trajectory, Transition, checked_transition
from leyden_storage.trajectories.batch_format import (
    CALL_COLUMNS,
    FORMAT,
    FORMAT_KEY,
    HEAD_COLUMNS,
    SCHEMA,
    TOKEN_COLUMNS,
    Detail,
    UnreadableBatch,
)
from leyden_storage.trajectories.id_columns import id_columns, join_ids
from leyden_storage.trajectories.prefixes import restore_prompts

_KINDS = [HEAD_COLUMNS, CALL_COLUMNS, TOKEN_COLUMNS]
_PLAIN = [name for name, _ in CALL_COLUMNS]
_TOKENS = ["prompt_token_ids", "response_token_ids", "response_logprobs"]
_NAMES = ["run", "episode", "attempt", *_PLAIN, *_TOKENS]
"""A call's fields, in the order in which a row is put together."""
_EMPTY: dict[str, Any] = dict.fromkeys(_NAMES)

Columns = dict[str, Sequence[Any]]
"""Name -> value by row."""


def decode_batch(
    source: bytes | io.RawIOBase, detail: Detail = Detail.TOKENS, wanted: Callable[[str], bool] | None = None
) -> list[Trajectory]:
    """Return the trajectories of a batch, or of its episodes that are `wanted`. Raises UnreadableBatch."""
    try:
        whole = pa.BufferReader(source) if isinstance(source, bytes) else source
        file = pq.ParquetFile(whole, page_checksum_verification=True)
        _check_format((file.metadata.metadata or {}).get(FORMAT_KEY))
        return list(_trajectories(_columns(_rows(file, detail, wanted), detail), detail))
    except UnreadableBatch:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableBatch(f"the batch of trajectories cannot be read: {error}") from error


def _check_format(found: bytes | None) -> None:
    if found is None:
        raise UnreadableBatch("this is a Parquet file, but no batch of trajectories")
    if found != FORMAT.encode():
        raise UnreadableBatch(
            f"this batch of trajectories is of format {found.decode(errors='replace')!r}, and this version of Leyden "
            f"reads format {FORMAT!r}: read it with the version that wrote it, or a newer one"
        )


def _rows(file: pq.ParquetFile, detail: Detail, wanted: Callable[[str], bool] | None) -> pa.Table:
    names = [name for kind in _KINDS[: detail.value] for name, _ in kind]
    if wanted is None:
        return file.read(columns=names, use_threads=False)
    keep = [wanted(episode) for episode in file.read(columns=["episode"]).column("episode").to_pylist()]
    # Tokens of a batch that holds nothing of use are not read.
    return file.read(columns=names).filter(pa.array(keep, pa.bool_())) if any(keep) else SCHEMA.empty_table()


def _columns(table: pa.Table, detail: Detail) -> Columns:
    """Return the values of the table; with tokens, the prompts' rests and the responses put together again."""
    split = {name: [part for part, _ in id_columns(name)] for name in ("prompt_rest", "response")}
    parts = {part for some in split.values() for part in some}
    columns: Columns = {name: table.column(name).to_pylist() for name in table.column_names if name not in parts}
    if detail is Detail.TOKENS:
        for name, some in split.items():
            columns[name] = join_ids([_whole(table.column(part)) for part in some])
    return columns


def _whole(column: pa.ChunkedArray) -> pa.Array:
    # combine_chunks() copies, and there is nearly always one chunk.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _trajectories(columns: Columns, detail: Detail) -> Iterator[Trajectory]:
    starts = [row for row, head in enumerate(columns["head"]) if head is not None]
    heads = [json.loads(columns["head"][row]) for row in starts]
    places = [slice(*place) for place in itertools.pairwise([*starts, len(columns["head"])])]
    calls = [] if detail is Detail.HEADS else _calls(columns, heads, places, detail)
    for head, rows in zip(heads, places, strict=True):
        has_calls = calls and columns["number"][rows.start] > 0
        yield Trajectory.model_validate({**head, "transitions": calls[rows] if has_calls else ()})


def _calls(
    columns: Columns, heads: Sequence[dict[str, Any]], places: Sequence[slice], detail: Detail
) -> list[Transition]:
    """Return a call for each row: all of a batch at once takes half of what it takes for each episode."""
    rows = [rows.stop - rows.start for rows in places]
    run, attempt = (
        itertools.chain.from_iterable(map(itertools.repeat, [head[name] for head in heads], rows))
        for name in ("run", "attempt")
    )
    if detail is Detail.TOKENS:
        prompts = itertools.chain.from_iterable(_prompts(columns, rows) for rows in places)
        tokens = [prompts, columns["response"], columns["response_logprobs"]]
    else:
        tokens = [[b""] * sum(rows)] * len(_TOKENS)
    plain = [columns[name] for name in _PLAIN]
    return [_call(row) for row in zip(run, columns["episode"], attempt, *plain, *tokens, strict=True)]


def _prompts(columns: Columns, rows: slice) -> list[bytes]:
    """Return the prompts of one episode."""
    merged = (columns[name][rows] for name in ("base_call", "shared_tokens", "prompt_rest"))
    return restore_prompts(zip(*merged, strict=True), columns["response"][rows])


def _call(row: Sequence[Any]) -> Transition:
    """Return a call, which was checked when it was made."""
    fields = _EMPTY.copy()  # faster to fill than a dictionary that must grow
    fields.update(zip(_NAMES, row, strict=True))
    return checked_transition(fields)
