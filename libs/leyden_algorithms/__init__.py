"""From rewards to a loss: credit over calls, advantages, the policy objective. Pure torch, no I/O.

The way of a step, each stage a table of names and strategies:

    episodes --CREDIT_STRATEGIES, COMPARISONS--> advantages of calls
    tokens under three policies --TOKEN_LOSSES--> losses of tokens, to which `kl_loss` and `entropy_bonus` add
    tokens --CORRECTIONS--> weights of tokens
    losses × weights --AGGREGATIONS--> the loss of the step

Letters at the end of a name are its shape: E episodes, C calls of those episodes, S samples, T response tokens,
N anything that is compared, K rewards of an episode, P pairs, V vocabulary. The dataclasses are in `types`.
"""

from leyden_algorithms.advantages import COMPARISONS, WITHIN_GROUPS
from leyden_algorithms.aggregation import AGGREGATIONS
from leyden_algorithms.corrections import CORRECTIONS, Correction
from leyden_algorithms.credit import CREDIT_STRATEGIES, ValueHead, critic_targets, fit_values, value_loss
from leyden_algorithms.groups import group_labels, state_hash
from leyden_algorithms.losses import (
    KL_ESTIMATORS,
    KL_LOSSES,
    TOKEN_LOSSES,
    entropy_bonus,
    kl_loss,
    token_entropies,
)
from leyden_algorithms.preferences import PAIRINGS, Pairs, dpo_loss, dpo_metrics, sequence_logprobs, sft_loss
from leyden_algorithms.stats import RatioStats
from leyden_algorithms.types import Episodes, Tokens, Totals

__all__ = [
    "AGGREGATIONS",
    "COMPARISONS",
    "CORRECTIONS",
    "CREDIT_STRATEGIES",
    "KL_ESTIMATORS",
    "KL_LOSSES",
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
    "fit_values",
    "group_labels",
    "kl_loss",
    "sequence_logprobs",
    "sft_loss",
    "state_hash",
    "token_entropies",
    "value_loss",
]
