"""What a replica is asked to prove a version: single tokens, each after a beginning of a probe. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from leyden_contracts import Probe


class Unprovable(Exception):
    """There is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Question:
    """What does the replica think of `token` after `prefix`? And what do three policies: natural log."""

    prefix: tuple[int, ...]
    token: int
    learner: float
    parent: float
    base: float


def choose(probes: Sequence[Probe]) -> list[Question]:
    """Return what to ask. Raises Unprovable if the probes are no use."""
    if not probes:
        raise Unprovable("the manifest has no probes, so nothing can be proved")
    questions = [question for number, probe in enumerate(probes) for question in _of(number, probe)]
    if not questions:
        raise Unprovable("the probes have no places, so nothing can be proved")
    return questions


def _of(number: int, probe: Probe) -> Iterator[Question]:
    rows = (probe.logprobs, probe.parent_logprobs, probe.base_logprobs)
    if {len(row) for row in (*rows, probe.next_ids)} != {len(probe.places)}:
        raise Unprovable(f"probe {number}: there must be one token and one logprob for each place")
    if not all(1 <= place <= len(probe.token_ids) for place in probe.places):
        raise Unprovable(f"probe {number}: a place is outside of its tokens")
    if not all(np.isfinite(row).all() for row in rows):
        raise Unprovable(f"probe {number}: a logprob is not a finite number")
    for place, token, learner, parent, base in zip(probe.places, probe.next_ids, *rows, strict=True):
        yield Question(tuple(probe.token_ids[:place]), token, learner, parent, base)
