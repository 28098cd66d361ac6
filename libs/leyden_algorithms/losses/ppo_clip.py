"""PPO's clipped surrogate (arXiv 1707.06347, section 3), with two bounds (DAPO) and, on demand, the dual clip."""

import torch
from torch import Tensor

from leyden_algorithms.numbers import log_ratio, precise
from leyden_algorithms.types import Tokens


def clipped(ratio_T: Tensor, advantages_T: Tensor, low: float, high: float, dual: float | None) -> Tensor:
    """Return minus the smaller of ratio × advantage and the same with the ratio kept within [1 - low, 1 + high].

    `dual` bounds the ratio where the advantage is negative: there, PPO alone lets it pull without limit (arXiv
    1912.09729, section 4.2).
    """
    if dual is not None and dual <= 1:
        raise ValueError("the dual clip must be above 1")
    bounded_T = ratio_T.clamp(1 - low, 1 + high)
    free_T = ratio_T if dual is None else torch.where(advantages_T < 0, ratio_T.clamp(max=dual), ratio_T)
    return -torch.minimum(free_T * advantages_T, bounded_T * advantages_T)


def ppo_clip(
    tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = None
) -> Tensor:
    """Return PPO's loss of each token, shape [T]; the ratio is current / old, token by token."""
    ratio_T = log_ratio(tokens.current_T, tokens.old_T.detach()).exp()
    return clipped(ratio_T, precise(tokens.advantages_T), clip_low, clip_high, dual_clip)
