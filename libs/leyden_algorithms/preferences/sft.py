"""Supervised fine-tuning: cross-entropy of the tokens that an assistant said (arXiv 2203.02155, section 3.5)."""

from torch import Tensor

from leyden_algorithms.numbers import precise


def sft_loss(logprobs_T: Tensor, mask_T: Tensor) -> Tensor:
    """Return minus the logprob of each token to learn, and 0 for the others, shape [T].

    For `token_mean` the step's total of tokens is that of `mask_T`: what is masked is no data.
    """
    # Not a product: 0 × infinity would be NaN.
    return (-precise(logprobs_T)).masked_fill(~mask_T.bool(), 0)
