"""Preference pairs from a group: its rewards say which answer is better (as in arXiv 2407.21783, section 4.1)."""

import torch
from torch import Tensor


def extremes(rewards_E: Tensor, *, margin: float = 0.0) -> Tensor:
    """Pair the best episode with the worst; the first of equals. See `every_pair` for arguments and result."""
    pairs_P2 = every_pair(rewards_E, margin=margin)
    if not pairs_P2.numel():
        return pairs_P2
    return torch.stack([rewards_E.argmax(), rewards_E.argmin()])[None]


def every_pair(rewards_E: Tensor, *, margin: float = 0.0) -> Tensor:
    """Pair each episode with each that earned less.

    Args:
        rewards_E: of one group, shape [E].
        margin: the better one must have earned more than this above the other.

    Returns:
        Indices (chosen, rejected), int64, shape [P, 2]; P is 0 where all rewards are equal, or there is but one.

    Raises:
        ValueError: a reward is NaN or infinite.
    """
    if not bool(torch.isfinite(rewards_E).all()):
        raise ValueError("a reward is NaN or infinite: leave its episode out")
    return ((rewards_E[:, None] - rewards_E[None, :]) > margin).nonzero()


PAIRINGS = {"extremes": extremes, "every": every_pair}
"""(rewards [E], options) -> indices [P, 2]."""
