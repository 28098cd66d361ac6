"""From rewards to a loss: credit over calls, advantages, the policy objective. Pure torch, no I/O.

The way of a step, each stage a table of names and strategies:

    episodes --CREDIT_STRATEGIES, COMPARISONS--> advantages of calls
    tokens under three policies --TOKEN_LOSSES--> losses of tokens, to which `kl_loss` and `entropy_bonus` add
    tokens --CORRECTIONS--> weights of tokens
    losses × weights --AGGREGATIONS--> the loss of the step

Letters at the end of a name are its shape: E episodes, C calls of those episodes, S samples, T response tokens,
N anything that is compared, K rewards of an episode, P pairs, V vocabulary. The dataclasses are in `types`.

CREDITS, ADVANTAGES and LOSSES are the same for one group, and for a policy that sampled its own tokens.
"""

from leyden_algorithms.advantages import COMPARISONS, WITHIN_GROUPS, grpo_advantages
from leyden_algorithms.aggregation import AGGREGATIONS
from leyden_algorithms.corrections import CORRECTIONS, Correction
from leyden_algorithms.credit import CREDIT_STRATEGIES, ValueHead, critic_targets, identical_credit, value_loss
from leyden_algorithms.groups import group_labels, state_hash
from leyden_algorithms.losses import (
    KL_ESTIMATORS,
    KL_LOSSES,
    TOKEN_LOSSES,
    entropy_bonus,
    kl_loss,
    ppo_clip_loss,
    token_entropies,
)
from leyden_algorithms.preferences import PAIRINGS, Pairs, dpo_loss, dpo_metrics, sequence_logprobs, sft_loss
from leyden_algorithms.stats import RatioStats
from leyden_algorithms.types import Episodes, Tokens, Totals

CREDITS = {"identical": identical_credit}
"""(rewards [E], calls of each episode [E]) -> credit [C]."""
ADVANTAGES = {"grpo": grpo_advantages}
"""(credit [C], rewards [E]) -> advantages [C]."""
LOSSES = {"ppo_clip": ppo_clip_loss}
"""(logprobs [T], sampled logprobs [T], advantages [T], clip_low, clip_high) -> losses [T]."""

__all__ = [
    "ADVANTAGES",
    "AGGREGATIONS",
    "COMPARISONS",
    "CORRECTIONS",
    "CREDITS",
    "CREDIT_STRATEGIES",
    "KL_ESTIMATORS",
    "KL_LOSSES",
    "LOSSES",
    "PAIRINGS",
    "TOKEN_LOSSES",
    "WITHIN_GROUPS",
    "Correction",
    "Episodes",
    "Pairs",
    "RatioStats",
    "Tokens",
    "Totals",
    "ValueHead",
    "critic_targets",
    "dpo_loss",
    "dpo_metrics",
    "entropy_bonus",
    "group_labels",
    "grpo_advantages",
    "identical_credit",
    "kl_loss",
    "ppo_clip_loss",
    "sequence_logprobs",
    "sft_loss",
    "state_hash",
    "token_entropies",
    "value_loss",
]
