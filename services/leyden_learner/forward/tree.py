"""Token sequences as a forest in which every common beginning stands once, laid out flat.

Sequences are sorted, so that those with a common beginning are neighbours. The first is a strip; each next one adds a
strip of only what it does not share with its neighbour, and hangs from the strip that has the rest:

    A B C D E          strips   [A B C D E][X Y][Z]      flat:  A B C D E X Y Z
    A B C X Y                          |    |            depth: 0 1 2 3 4 3 4 3
    A B C Z                     hang from C: both look at A B C, once for all

A token's position id is its depth. Its subtree is one range of the flat order, so a token sees exactly those before it
whose subtree has not ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

LEAST = 12
"""Tokens that must be saved before a branch gets a place of its own: one costs some kernel calls a layer.

Measured on a CPU with a hidden size of 256: 8 tokens gain nothing, 16 do; wider models would gain earlier.
"""


class Branch(NamedTuple):
    """Queries [q0, q1), all strips that hang from one place, look at all keys [k0, k1) of the strip above."""

    q0: int
    q1: int
    k0: int
    k1: int


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The flat layout of T tokens."""

    tokens: Tensor
    """int64, shape [T]."""
    depths: Tensor
    """Position ids, int64, shape [T]."""
    ends: Tensor
    """Where each token's subtree ends, int64, shape [T]: token t is seen from t to ends[t] - 1."""
    strips: tuple[tuple[int, int], ...]
    """Ranges in which attention is plainly causal; they follow each other and cover everything."""
    branches: tuple[Branch, ...]
    """What strips see beyond themselves; a strip's branches are those whose queries contain it."""
    paths: tuple[Tensor, ...]
    """For each sequence given, the places of its tokens: int64, shape [its length]."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The sequences that no other one continues, sorted, so that common beginnings are neighbours."""

    sequence: list[int]
    """Index of each leaf's sequence."""
    length: np.ndarray
    """Tokens of each leaf, shape [L]."""
    shared: np.ndarray
    """Tokens that a leaf has in common with the one before it and that are worth sharing, shape [L]; first is 0."""
    owner: list[int]
    """For each sequence, the leaf that contains it."""


def find_leaves(sequences: Sequence[Tensor], least: int = LEAST) -> Leaves:
    """Sort the sequences and find what neighbours share.

    Args:
        sequences: int64, each of shape [1 or more].
        least: a branch less than this many tokens deeper than the one above is moved up to that one.
    """
    arrays = [sequence.numpy() for sequence in sequences]
    # Any order of the bytes will do: it puts equal beginnings together, and a beginning before what continues it.
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].tobytes())
    leaves: list[int] = []
    shared: list[int] = []
    owner = [0] * len(arrays)
    common = 0
    for rank, i in enumerate(order):
        owner[i] = len(leaves)
        with_next = _common(arrays[i], arrays[order[rank + 1]]) if rank + 1 < len(order) else 0
        if rank + 1 < len(order) and with_next == arrays[i].size:
            continue
        leaves.append(i)
        shared.append(common)
        common = with_next
    length = np.array([arrays[i].size for i in leaves])
    return Leaves(leaves, length, _worthwhile(np.array(shared), least), owner)


def _common(one: np.ndarray, other: np.ndarray) -> int:
    short = min(one.size, other.size)
    differ = one[:short] != other[:short]
    return int(differ.argmax()) if differ.any() else short


def _worthwhile(shared: np.ndarray, least: int) -> np.ndarray:
    """Move each branch that is less than `least` below the branch above it up to that one."""
    result = shared.copy()
    todo = [(0, shared.size, 0)]
    while todo:
        low, high, base = todo.pop()
        if high - low < 2:
            continue
        inner = shared[low + 1 : high]
        depth = int(inner.min())
        cuts = low + 1 + np.flatnonzero(inner == depth)
        depth = depth if depth - base >= least else base
        result[cuts] = depth
        todo += [(*run, depth) for run in pairwise([low, *cuts.tolist(), high])]
    return result


def plant(sequences: Sequence[Tensor], least: int = LEAST) -> Forest:
    """Lay the sequences out; see `find_leaves` for the arguments."""
    leaves = find_leaves(sequences, least)
    starts = np.concatenate([[0], (leaves.length - leaves.shared).cumsum()]).tolist()
    strips = tuple(pairwise(starts))
    branches = _branches(leaves.shared.tolist(), starts)
    places: list[Tensor] = []
    for (start, end), common in zip(strips, leaves.shared.tolist(), strict=True):
        above = places[-1][:common] if places else torch.empty(0, dtype=torch.long)
        places.append(torch.cat([above, torch.arange(start, end)]))
    return Forest(
        tokens=torch.cat([sequences[i][common:] for i, common in zip(leaves.sequence, leaves.shared, strict=True)]),
        depths=torch.cat([torch.arange(a, b) for a, b in zip(leaves.shared, leaves.length, strict=True)]),
        ends=_ends(strips, branches),
        strips=strips,
        branches=branches,
        paths=tuple(places[leaf][: one.numel()] for leaf, one in zip(leaves.owner, sequences, strict=True)),
    )


def _branches(shared: list[int], starts: list[int]) -> tuple[Branch, ...]:
    branches: dict[tuple[int, int], Branch] = {}
    parents: list[int] = []
    for leaf, common in enumerate(shared):
        parent = leaf - 1
        # Up from the neighbour, to the strip that has the last of the common tokens.
        while parent >= 0 and shared[parent] >= common:
            parent = parents[parent]
        parents.append(parent)
        if common and (parent, common) not in branches:
            last = next((i for i in range(leaf + 1, len(shared)) if shared[i] < common), len(shared))
            keys = starts[parent], starts[parent] + common - shared[parent]
            branches[parent, common] = Branch(starts[leaf], starts[last], *keys)
    return tuple(branches.values())


def _ends(strips: Sequence[tuple[int, int]], branches: Sequence[Branch]) -> Tensor:
    ends = torch.cat([torch.full((end - start,), end) for start, end in strips])
    for branch in branches:
        ends[branch.k0 : branch.k1].clamp_(min=branch.q1)
    return ends
