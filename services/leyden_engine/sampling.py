"""Chooses tokens from logits, and says how likely each was."""

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy."""
UNIFORM_BITS = 48
"""Of the random numbers. Few enough that `u * total < total` holds in float64: no token of probability 0 is chosen."""


def choose(
    logits: Tensor, temperature: Tensor, top_p: Tensor | None, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Choose one token a row.

    Args:
        logits: float32 of shape [B, V].
        temperature: float32 of shape [B]; below `GREEDY_BELOW`: the most likely token.
        top_p: float32 of shape [B], or None if no row uses it: nucleus sampling (arXiv 1904.09751).
        uniforms: float64 of shape [B], in [0, 1), multiples of 2**-UNIFORM_BITS.

    Returns:
        Tokens of shape [B], their logprobs of shape [B], and all logprobs of shape [B, V]: natural log, float32, of
        the distribution that was sampled from. For greedy rows: of the plain distribution at temperature 1.
    """
    greedy = temperature < GREEDY_BELOW
    scaled = logits / torch.where(greedy, 1.0, temperature)[:, None]
    if top_p is not None:
        scaled = _nucleus(scaled, torch.where(greedy, 1.0, top_p))
    logprobs = scaled.log_softmax(-1)
    mass = logprobs.double().exp().cumsum(-1)
    sampled = torch.searchsorted(mass, (uniforms * mass[:, -1])[:, None], right=True)[:, 0]
    tokens = torch.where(greedy, logits.argmax(-1), sampled)
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0], logprobs


def _nucleus(logits: Tensor, top_p: Tensor) -> Tensor:
    """Return the logits with -inf outside the smallest set of likeliest tokens whose mass reaches `top_p`."""
    ordered, index = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    outside = (before >= top_p[:, None]) & (top_p < 1)[:, None]
    return logits.masked_fill(outside.scatter(-1, index, outside), -torch.inf)
