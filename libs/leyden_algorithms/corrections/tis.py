"""TIS: truncated importance sampling between the engine and the learner.

Yao et al., Your Efficient RL Framework Secretly Brings You Off-Policy RL Training, 2025; the truncation is that of
V-trace (arXiv 1802.01561, section 4.1).
"""

import torch

from leyden_algorithms.corrections.correction import Correction, keep, sequence_ratio, token_ratio
from leyden_algorithms.numbers import precise
from leyden_algorithms.types import Tokens


def tis(tokens: Tokens, *, ceiling: float = 2.0, sequence: bool = False) -> Correction:
    """Weigh each token by old / sampled, at most `ceiling`.

    Args:
        tokens: under three policies.
        ceiling: bounds the variance, at the price of some bias.
        sequence: take the ratio of the whole sample instead of the token's.

    Returns:
        Weights, and the count of `truncated` tokens.
    """
    ratio_T = sequence_ratio(tokens) if sequence else token_ratio(tokens)
    kept = keep(ratio_T.clamp(max=ceiling), {})
    return Correction(kept.weights_T, kept.counts | {"truncated": int((ratio_T > ceiling).sum())})


def uncorrected(tokens: Tokens) -> Correction:
    """Weigh each token 1, whoever sampled it."""
    return Correction(torch.ones_like(precise(tokens.old_T)), {})
