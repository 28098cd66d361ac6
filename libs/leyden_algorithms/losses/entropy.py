"""Entropy of the policy at each token, and the bonus for it (arXiv 1602.01783, section 4)."""

import torch
from torch import Tensor

from leyden_algorithms.numbers import precise


def token_entropies(logits_TV: Tensor) -> Tensor:
    """Return the entropy at each token in nats, shape [T]. A logit of -inf is an impossible token."""
    logprobs_TV = precise(logits_TV).log_softmax(-1)
    # 0 × log 0 is 0, in the gradient too.
    safe_TV = logprobs_TV.masked_fill(logprobs_TV == -torch.inf, 0)
    return -(logprobs_TV.exp() * safe_TV).sum(-1)


def entropy_bonus(entropies_T: Tensor, coefficient: float) -> Tensor:
    """Return what to add to each token's loss, shape [T]: less where the policy is undecided."""
    return -coefficient * precise(entropies_T)
