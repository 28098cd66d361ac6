"""CISPO: the importance weight is clipped, the token is not (MiniMax-M1, arXiv 2506.13585, section 3.1)."""

from torch import Tensor

from leyden_algorithms.numbers import log_ratio, precise
from leyden_algorithms.types import Tokens


def cispo(tokens: Tokens, *, clip_low: float = 1.0, clip_high: float = 4.0) -> Tensor:
    """Return the loss of each token, shape [T]: REINFORCE's, weighted by current / old kept within bounds.

    PPO drops the gradient of a clipped token, and with it the rare tokens where a reasoning turns; here each keeps one.

    Args:
        tokens: to be averaged by `token_mean`.
        clip_low: the weight is at least 1 - `clip_low`; 1 is no bound, as in the paper.
        clip_high: the weight is at most 1 + `clip_high`.
    """
    ratio_T = log_ratio(tokens.current_T.detach(), tokens.old_T.detach()).exp()
    weight_T = ratio_T.clamp(1 - clip_low, 1 + clip_high)
    return -weight_T * precise(tokens.advantages_T) * precise(tokens.current_T)
