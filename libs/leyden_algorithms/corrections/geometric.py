"""Geometric sequence mask: a whole sample goes where its tokens, on the average, moved too far.

(Liu et al., When Speed Kills Stability, 2025.) The geometric mean of ratios does not grow with the length of an answer,
as their product does: a long answer is not dropped for being long.
"""

from leyden_algorithms.corrections.correction import Correction, keep
from leyden_algorithms.numbers import means, precise, spread
from leyden_algorithms.types import Tokens


def geometric(tokens: Tokens, *, low: float = 0.99, high: float = 1.01) -> Correction:
    """Keep each sample whose geometric mean of old / sampled lies in [`low`, `high`], with weight 1.

    It only masks: multiply with `tis` to weigh what is kept.

    Returns:
        Weights 0 or 1, and the counts of tokens dropped with their samples as `above` and `below`.
    """
    difference_T = precise(tokens.old_T).detach() - precise(tokens.sampled_T).detach()
    mean_S = means(difference_T, tokens.lengths_S).exp()
    mean_T = spread(mean_S, tokens.lengths_S)
    dropped = keep(mean_T, {"above": mean_T > high, "below": mean_T < low})
    return Correction((dropped.weights_T > 0).to(mean_T.dtype), dropped.counts)
