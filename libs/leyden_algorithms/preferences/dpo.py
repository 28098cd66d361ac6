"""DPO: direct preference optimisation (arXiv 2305.18290, section 4, equation 7)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from leyden_algorithms.numbers import precise, sums


@dataclass(frozen=True, slots=True)
class Pairs:
    """Logprobs of whole answers, under the policy in training and under the base, pair by pair."""

    chosen_P: Tensor
    rejected_P: Tensor
    base_chosen_P: Tensor
    base_rejected_P: Tensor


def sequence_logprobs(logprobs_T: Tensor, lengths_S: Tensor) -> Tensor:
    """Sum the logprobs of each sample's tokens: [T] -> [S]."""
    return sums(precise(logprobs_T), lengths_S)


def margins(pairs: Pairs, beta: float) -> Tensor:
    """Return how much more the policy has come to like the chosen answer, shape [P]: difference of implicit rewards."""
    chosen_P = precise(pairs.chosen_P) - precise(pairs.base_chosen_P).detach()
    rejected_P = precise(pairs.rejected_P) - precise(pairs.base_rejected_P).detach()
    return beta * (chosen_P - rejected_P)


def dpo_loss(pairs: Pairs, *, beta: float = 0.1, smoothing: float = 0.0) -> Tensor:
    """Return the loss of each pair, shape [P].

    Args:
        pairs: sequence logprobs; those of the base carry no gradient.
        beta: how much leaving the base costs.
        smoothing: the share of pairs believed to be the wrong way round (conservative DPO).
    """
    margin_P = margins(pairs, beta)
    return -(1 - smoothing) * logsigmoid(margin_P) - smoothing * logsigmoid(-margin_P)


def dpo_metrics(pairs: Pairs, *, beta: float = 0.1) -> dict[str, float]:
    """Return `accuracy` (pairs with a positive margin) and the mean `margin`."""
    with torch.no_grad():
        margin_P = margins(pairs, beta)
        return {"accuracy": (margin_P > 0).float().mean().item(), "margin": margin_P.mean().item()}
