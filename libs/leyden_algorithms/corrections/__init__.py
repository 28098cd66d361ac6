"""Off-policy correction: the tokens were sampled by another policy than the one that the trust region stands on.

An engine computes in other kernels and precision than the learner, and an asynchronous run samples with older adapters.
A correction maps `Tokens` to a `Correction`: weights [T] for the losses, and counts of what was dropped and why. It
judges old / sampled; how far current may leave old is the loss's affair.
"""

from collections.abc import Callable

from leyden_algorithms.corrections.correction import Correction
from leyden_algorithms.corrections.geometric import geometric
from leyden_algorithms.corrections.mis import icepop, mis
from leyden_algorithms.corrections.tis import tis, uncorrected

CORRECTIONS: dict[str, Callable[..., Correction]] = {
    "none": uncorrected,
    "tis": tis,
    "mis": mis,
    "icepop": icepop,
    "geometric": geometric,
}
"""(tokens, options) -> correction. Two are combined by `*`."""

__all__ = ["CORRECTIONS", "Correction", "geometric", "icepop", "mis", "tis", "uncorrected"]
