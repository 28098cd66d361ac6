"""From losses of tokens to the loss of a step. Each is a sum over `Totals` of the whole step, so that it can be split.

A token that a correction dropped still counts: otherwise dropping some would raise the others' weight.
"""

from collections.abc import Callable

from torch import Tensor

from leyden_algorithms.numbers import means
from leyden_algorithms.types import Totals


def token_mean(losses_T: Tensor, lengths_S: Tensor, totals: Totals) -> Tensor:
    """Weigh each token the same (DAPO, arXiv 2503.14476, section 3.3): long answers count for more."""
    return losses_T.sum() / totals.tokens


def sequence_mean(losses_T: Tensor, lengths_S: Tensor, totals: Totals) -> Tensor:
    """Weigh each sample the same (GRPO, arXiv 2402.03300, equation 3): tokens of long answers count for less.

    With the tokens of each *episode* as lengths, and episodes as samples, every episode weighs the same.
    """
    return means(losses_T, lengths_S).sum() / totals.samples


def constant(losses_T: Tensor, lengths_S: Tensor, totals: Totals, *, length: int) -> Tensor:
    """Divide each sample's sum by the same `length` (Dr. GRPO, arXiv 2503.20783, section 3.2), say the longest allowed.

    Neither the length of an answer nor that of its neighbours changes a token's weight.
    """
    if length < 1:
        raise ValueError("the constant length must be at least 1")
    return losses_T.sum() / (totals.samples * length)


AGGREGATIONS: dict[str, Callable[..., Tensor]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "constant": constant,
}
"""(losses [T], lengths [S], totals of the step, options) -> this part's share of the loss."""
