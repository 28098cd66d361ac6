"""What a correction returns, and how the ratio that it judges is computed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from leyden_algorithms.numbers import LARGEST_LOG_RATIO, log_ratio, precise, spread, sums
from leyden_algorithms.types import Tokens


@dataclass(frozen=True, slots=True)
class Correction:
    """How much each token's loss counts, and what was changed."""

    weights_T: Tensor
    """Multiplied with the losses, shape [T]; carries no gradient. 0: dropped."""
    counts: dict[str, int]
    """Reason -> tokens. `truncated` ones stay with a smaller weight; all other reasons mean dropped."""

    def __mul__(self, other: "Correction") -> "Correction":
        """Apply both: weights are multiplied, counts added."""
        reasons = self.counts.keys() | other.counts.keys()
        counts = {reason: self.counts.get(reason, 0) + other.counts.get(reason, 0) for reason in sorted(reasons)}
        return Correction(self.weights_T * other.weights_T, counts)


def token_ratio(tokens: Tokens) -> Tensor:
    """Return old / sampled of each token, shape [T]; NaN where a logprob is not a number."""
    return log_ratio(tokens.old_T.detach(), tokens.sampled_T.detach()).exp()


def sequence_ratio(tokens: Tokens) -> Tensor:
    """Return old / sampled of each token's whole sample, shape [T]: the product over its tokens."""
    difference_T = precise(tokens.old_T).detach() - precise(tokens.sampled_T).detach()
    logs_S = sums(difference_T, tokens.lengths_S).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return spread(logs_S.exp(), tokens.lengths_S)


def keep(weights_T: Tensor, reasons: dict[str, Tensor]) -> Correction:
    """Drop the tokens that a reason names, and those whose weight is not finite (`not_finite`)."""
    reasons = reasons | {"not_finite": ~torch.isfinite(weights_T)}
    dropped_T = torch.stack(list(reasons.values())).any(0)
    return Correction(weights_T.masked_fill(dropped_T, 0), {name: int(found.sum()) for name, found in reasons.items()})
