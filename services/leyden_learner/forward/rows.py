"""How a batch is fed in rows: calls that extend each other in one row, rows of like length in one pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leyden_learner.samples import Sample


@dataclass(frozen=True, slots=True)
class Row:
    """One token sequence, and the calls whose responses stand in it."""

    tokens: Tensor
    """int64, shape [T]."""
    samples: tuple[int, ...]
    """Indices of the calls; each one's tokens are the beginning of `tokens`."""


def make_rows(samples: Sequence[Sample]) -> list[Row]:
    """Put a call into the row of the call before it where its prompt begins with that row's tokens.

    A conversation of several turns is then computed once, not once a turn. Under causal attention the logprobs are
    the same.
    """
    rows: list[Row] = []
    for i, sample in enumerate(samples):
        if rows and _extends(sample, rows[-1].tokens):
            rows[-1] = Row(sample.tokens, (*rows[-1].samples, i))
        else:
            rows.append(Row(sample.tokens, (i,)))
    return rows


def _extends(sample: Sample, tokens: Tensor) -> bool:
    return sample.prompt_length >= tokens.numel() and torch.equal(sample.tokens[: tokens.numel()], tokens)


def cut_rows(rows: Sequence[Row], token_limit: int) -> Iterator[list[Row]]:
    """Yield the rows, longest first, in parts whose padded size stays within `token_limit` tokens.

    Neighbours in length share a part, so that little is padded. One row longer than the limit goes alone.
    """
    part: list[Row] = []
    for row in sorted(rows, key=lambda one: one.tokens.numel(), reverse=True):
        if part and (len(part) + 1) * part[0].tokens.numel() > token_limit:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
