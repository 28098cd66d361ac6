"""DAPO (arXiv 2503.14476): clip-higher (section 3.1), to be averaged over tokens (section 3.3: `token_mean`)."""

from torch import Tensor

from leyden_algorithms.losses.ppo_clip import ppo_clip
from leyden_algorithms.types import Tokens


def dapo(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.28, dual_clip: float | None = None) -> Tensor:
    """Return PPO's loss of each token, shape [T], with more room upwards, where rare tokens are found."""
    return ppo_clip(tokens, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
