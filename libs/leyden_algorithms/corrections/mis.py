"""MIS and IcePop: tokens on which engine and learner disagree too much are masked, not truncated.

A token far outside is more often an error of a kernel than news about the policy: truncation would keep its gradient.
"""

from leyden_algorithms.corrections.correction import Correction, keep, sequence_ratio, token_ratio
from leyden_algorithms.types import Tokens


def mis(tokens: Tokens, *, ceiling: float = 2.0, sequence: bool = False) -> Correction:
    """Weigh each token by old / sampled; drop it where that is more than `ceiling`.

    Masked importance sampling (Liu et al., When Speed Kills Stability, 2025): one-sided.

    Args:
        tokens: under three policies.
        ceiling: of the ratio.
        sequence: judge and weigh whole samples by the product of their tokens' ratios.

    Returns:
        Weights, and the count of tokens dropped as `above`.
    """
    ratio_T = sequence_ratio(tokens) if sequence else token_ratio(tokens)
    return keep(ratio_T, {"above": ratio_T > ceiling})


def icepop(tokens: Tokens, *, low: float = 0.5, high: float = 5.0) -> Correction:
    """Weigh each token by old / sampled; drop it where that is outside [`low`, `high`].

    IcePop (Ring-1T, arXiv 2510.18855, section on RL; α and β are its defaults): two-sided.

    Returns:
        Weights, and the counts of tokens dropped as `above` and `below`.
    """
    ratio_T = token_ratio(tokens)
    return keep(ratio_T, {"above": ratio_T > high, "below": ratio_T < low})
