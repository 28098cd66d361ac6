"""What a replica is asked to prove a version: single tokens of the probes, each after its prefix. Pure.

A replica lists only its most likely tokens. One that the learner gives a twentieth or more must be among the first
twenty; so such tokens are asked for, first those on which this version differs most from its parent and the base.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from leyden_contracts import Probe

EACH = 12
"""Questions a probe at most."""
_LIKELY = -3.0
"""Natural log of a twentieth."""
_FEWEST = 4
"""Answers that a verdict needs, if that many questions were asked."""


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

    @property
    def telling(self) -> float:
        """How far this version is from those that a wrong replica would serve."""
        return max(abs(self.learner - self.parent), abs(self.learner - self.base))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a replica says of one token."""

    logprob: float
    listed: bool = True
    """False: the token was not among the most likely ones, so this is the most that its logprob can be."""


def choose(probes: Sequence[Probe], each: int = EACH) -> list[Question]:
    """Return what to ask: at most `each` questions a probe. Raises Unprovable if the probes are no use."""
    if not probes:
        raise Unprovable("the manifest has no probes, so nothing can be proved")
    return [question for number, probe in enumerate(probes) for question in _of(number, probe, each)]


def comparable(
    questions: Sequence[Question], answers: Sequence[Answer], tolerance: float
) -> tuple[list[Question], list[float]]:
    """Return the questions that were answered, and the replica's logprobs.

    A token that is not listed, and need not be by the learner's own word, is left out. Raises Unprovable.
    """
    kept = [
        (question, answer.logprob)
        for question, answer in zip(questions, answers, strict=True)
        if answer.listed or question.learner > answer.logprob + tolerance
    ]
    if len(kept) < min(_FEWEST, len(questions)):
        raise Unprovable(f"only {len(kept)} of {len(questions)} tokens are among those that the replica lists")
    if not np.isfinite([logprob for _, logprob in kept]).all():
        raise Unprovable("a logprob of the replica is not a finite number")
    return [question for question, _ in kept], [logprob for _, logprob in kept]


def _of(number: int, probe: Probe, each: int) -> list[Question]:
    rows = (probe.logprobs, probe.parent_logprobs, probe.base_logprobs)
    if {len(row) for row in rows} != {len(probe.token_ids) - 1} or len(probe.token_ids) < 2:
        raise Unprovable(f"probe {number}: there must be one logprob for each token but the first")
    if not all(np.isfinite(row).all() for row in rows):
        raise Unprovable(f"probe {number}: a logprob is not a finite number")
    likely = sorted((q for q in _all(probe) if q.learner >= _LIKELY), key=lambda q: -q.telling)
    others = sorted((q for q in _all(probe) if q.learner < _LIKELY), key=lambda q: -q.learner)
    return [*likely, *others][:each]


def _all(probe: Probe) -> Iterator[Question]:
    values = zip(probe.logprobs, probe.parent_logprobs, probe.base_logprobs, strict=True)
    for place, (learner, parent, base) in enumerate(values, 1):
        yield Question(tuple(probe.token_ids[:place]), probe.token_ids[place], learner, parent, base)
