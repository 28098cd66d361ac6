"""From rewards to a loss: credit over calls, advantages over a group, the policy objective. Pure torch, no I/O.

A run names its functions (`algorithm.credit`, `.advantage`, `.loss`); the tables below turn names into functions.
Letters at the end of a name are its shape: E episodes of one group, C calls of those episodes, T response tokens.
"""

from leyden_algorithms.advantages import grpo_advantages
from leyden_algorithms.credit import identical_credit
from leyden_algorithms.losses import RatioStats, ppo_clip_loss

CREDITS = {"identical": identical_credit}
"""(rewards [E], calls of each episode [E]) -> credit [C]."""
ADVANTAGES = {"grpo": grpo_advantages}
"""(credit [C], rewards [E]) -> advantages [C]."""
LOSSES = {"ppo_clip": ppo_clip_loss}
"""(logprobs [T], sampled logprobs [T], advantages [T], clip_low, clip_high) -> losses [T]."""

__all__ = ["ADVANTAGES", "CREDITS", "LOSSES", "RatioStats", "grpo_advantages", "identical_credit", "ppo_clip_loss"]
