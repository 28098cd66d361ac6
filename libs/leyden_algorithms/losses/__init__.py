"""Policy objectives over tokens. A loss maps `Tokens` to losses [T]; `aggregation` says what is averaged."""

from collections.abc import Callable

from torch import Tensor

from leyden_algorithms.losses.cispo import cispo
from leyden_algorithms.losses.dapo import dapo
from leyden_algorithms.losses.entropy import entropy_bonus, token_entropies
from leyden_algorithms.losses.gspo import gspo, gspo_token
from leyden_algorithms.losses.kl import KL_ESTIMATORS, KL_LOSSES, kl_loss
from leyden_algorithms.losses.ppo_clip import ppo_clip

TOKEN_LOSSES: dict[str, Callable[..., Tensor]] = {
    "ppo_clip": ppo_clip,
    "dapo": dapo,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "cispo": cispo,
}
"""(tokens, options) -> losses [T]."""

__all__ = [
    "KL_ESTIMATORS",
    "KL_LOSSES",
    "TOKEN_LOSSES",
    "cispo",
    "dapo",
    "entropy_bonus",
    "gspo",
    "gspo_token",
    "kl_loss",
    "ppo_clip",
    "token_entropies",
]
