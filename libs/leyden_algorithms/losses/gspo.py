"""GSPO: the ratio of a whole sequence, length-normalised (arXiv 2507.18071, section 4).

A reward is of a sequence, so the correction is too: a ratio of single tokens is noise of single samples. To be averaged
by `sequence_mean`; the clip range is about a hundredth of PPO's.
"""

from torch import Tensor

from leyden_algorithms.losses.ppo_clip import clipped
from leyden_algorithms.numbers import log_ratio, means, precise, spread
from leyden_algorithms.types import Tokens


def gspo(tokens: Tokens, *, clip_low: float = 3e-4, clip_high: float = 4e-4, dual_clip: float | None = None) -> Tensor:
    """Return the loss of each token, shape [T]; all tokens of a sample share the ratio (section 4.1).

    The ratio is the geometric mean of current / old over the sample's tokens.
    """
    per_token_T = log_ratio(tokens.current_T, tokens.old_T.detach())
    ratio_T = spread(means(per_token_T, tokens.lengths_S).exp(), tokens.lengths_S)
    return clipped(ratio_T, precise(tokens.advantages_T), clip_low, clip_high, dual_clip)


def gspo_token(
    tokens: Tokens, *, clip_low: float = 3e-4, clip_high: float = 4e-4, dual_clip: float | None = None
) -> Tensor:
    """Return the loss of each token, shape [T], where advantages may differ within a sample (section 4.3).

    The number is that of `gspo`; the gradient of each token's loss is its own.
    """
    per_token_T = log_ratio(tokens.current_T, tokens.old_T.detach())
    ratio_T = spread(means(per_token_T, tokens.lengths_S).exp(), tokens.lengths_S).detach()
    own_T = (per_token_T - per_token_T.detach()).exp()
    return clipped(ratio_T * own_T, precise(tokens.advantages_T), clip_low, clip_high, dual_clip)
