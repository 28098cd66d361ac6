"""The proof: does a replica serve the policy that the learner wrote, and not the one before it or the base? Pure.

Three policies have scored the same tokens (`leyden_contracts.Probe`); the replica scores some of them too. It passes if

1. no token's logprob is further from the learner's than `tolerance`, which only rounding should use up; and
2. on the straight line from the parent's logprobs (0) to the learner's (1), the replica's are at 0.5 to 1.5. The same
   from the base's. A replica that silently kept the old adapter, or ignores adapters, is at 0.

A comparison of 2 is left out in two cases. Where learner and other policy differ by no more than float32 rounding they
are one policy (a step with learning rate 0 must pass). And where the replica's own rounding, measured as its distance
from the nearer of the two, drowns their difference, the place on the line says nothing; such a difference is then
within `tolerance`, and as it adds up over versions, a replica that stays behind fails a few versions later.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leyden_adapter_loader.questions import Question

SAME_POLICY = 1e-4
"""Two policies whose logprobs (natural log) differ by no more than this are the same one, to float32 rounding.

A 30-layer model of 135 M parameters in float32 is 4e-5 off its float64 self at most, 1e-5 in the root mean square.
"""
_SIGMAS = 8.0
"""A difference counts as seen if its length is this many times the replica's rounding of one token.

The place on the line then errs by 1/8 (one sigma), so that 0 and 1 lie 4 sigmas from the border between them.
"""

Logprobs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the probes showed."""

    passed: bool
    reason: str
    """For people; also when it passed."""
    worst: float
    """Largest distance from the learner, over all tokens."""
    unseen: tuple[str, ...] = ()
    """Policies (`parent`, `base`) that differ from this one, but by less than the replica's rounding shows."""


def judge(questions: Sequence[Question], served: Sequence[float], tolerance: float) -> Verdict:
    """Return whether the replica serves the policy that the questions are about.

    Args:
        questions: one or more, answered.
        served: the replica's logprob for each, finite.
        tolerance: largest distance of one logprob (natural log) that rounding may explain.
    """
    mine = np.asarray(served, np.float64)
    learner = np.asarray([question.learner for question in questions], np.float64)
    distances = np.abs(mine - learner)
    at, worst = questions[int(distances.argmax())], float(distances.max())
    others = {
        "parent": np.asarray([question.parent for question in questions], np.float64),
        "base": np.asarray([question.base for question in questions], np.float64),
    }
    unseen = []
    for name, other in others.items():
        place = _place(mine, learner, other)
        if place is None:
            continue
        if not _is_seen(mine, learner, other):
            unseen.append(name)
        elif not 0.5 <= place <= 1.5:
            return Verdict(
                False,
                f"it serves another policy: on the way from {name} (0) to this version (1) it is at {place:.3g}",
                worst,
            )
    if worst > tolerance:
        where = f"of token {at.token} after {len(at.prefix)} others"
        return Verdict(
            False, f"the logprob {where} is {worst:.3g} from the learner's; {tolerance:.3g} is allowed", worst
        )
    return Verdict(True, f"all {mine.size} logprobs are within {worst:.3g} of the learner's", worst, tuple(unseen))


def _place(mine: Logprobs, learner: Logprobs, other: Logprobs) -> float | None:
    """Return where the replica is on the line from `other` to `learner`; None if those are the same policy."""
    way = learner - other
    if np.abs(way).max() <= SAME_POLICY:
        return None
    return float((mine - other) @ way / (way @ way))


def _is_seen(mine: Logprobs, learner: Logprobs, other: Logprobs) -> bool:
    nearest = min(float(np.linalg.norm(mine - policy)) for policy in (learner, other))
    rounding = nearest / np.sqrt(mine.size)
    return bool(np.linalg.norm(learner - other) >= _SIGMAS * rounding)
