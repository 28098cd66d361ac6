"""How a batch is cut into passes, and the passes are shared between processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from torch import Tensor

from leyden_learner.forward.tree import Leaves, find_leaves


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What goes through the model together."""

    samples: tuple[int, ...]
    """Their indices."""
    tokens: int
    """Fed to the model, padding included."""


def pack(sequences: Sequence[Tensor], token_limit: int) -> list[MicroBatch]:
    """Cut the sequences into passes; those with a common beginning stay together while they fit.

    Trees that fit share a pass with their neighbours as long as `token_limit` allows. A tree that does not fit is cut
    where its branches share least; one sequence longer than the limit goes alone.
    """
    leaves = find_leaves(sequences)
    cut = _Cut(leaves, token_limit)
    samples: list[list[int]] = [[] for _ in leaves.sequence]
    for i, leaf in enumerate(leaves.owner):
        samples[leaf].append(i)
    return [
        MicroBatch(tuple(sorted(i for leaf in range(low, high) for i in samples[leaf])), cut.cost(low, high))
        for low, high in cut.passes()
    ]


class _Cut:
    """Cuts sorted leaves into ranges [low, high)."""

    def __init__(self, leaves: Leaves, token_limit: int) -> None:
        self._leaves, self._limit = leaves, token_limit
        self._own = np.concatenate([[0], (leaves.length - leaves.shared).cumsum()])

    def cost(self, low: int, high: int) -> int:
        """Return how many tokens a pass of these leaves feeds."""
        return int(self._own[high] - self._own[low] + self._leaves.shared[low])

    def passes(self) -> Iterator[tuple[int, int]]:
        begun = 0
        for low, high in self._units():
            if low > begun and self.cost(begun, high) > self._limit:
                yield begun, low
                begun = low
        yield begun, len(self._leaves.sequence)

    def _units(self) -> Iterator[tuple[int, int]]:
        """Yield, in order, the largest subtrees that fit."""
        todo = [(0, len(self._leaves.sequence))]
        while todo:
            low, high = todo.pop()
            if high - low == 1 or (self.cost(low, high) <= self._limit and self._joined(low, high)):
                yield low, high
                continue
            inner = self._leaves.shared[low + 1 : high]
            bounds = [low, *(low + 1 + np.flatnonzero(inner == inner.min())).tolist(), high]
            todo += reversed(list(pairwise(bounds)))

    def _joined(self, low: int, high: int) -> bool:
        return bool((self._leaves.shared[low + 1 : high] > 0).all())


def share(parts: Sequence[MicroBatch], processes: int) -> list[list[MicroBatch]]:
    """Give each process its passes, so that all have about as many tokens to feed; the same in every process."""
    shares: list[list[MicroBatch]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for part in sorted(parts, key=lambda one: one.tokens, reverse=True):
        least = loads.index(min(loads))
        shares[least].append(part)
        loads[least] += part.tokens
    return shares
