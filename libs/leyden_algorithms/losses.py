"""Policy objectives over tokens, and what to watch about the importance ratio."""

import torch
from torch import Tensor

_LARGEST = 20.0
"""Bound of a log ratio: keeps one wild token from making the whole gradient infinite."""


def ppo_clip_loss(
    logprobs_T: Tensor, sampled_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float
) -> Tensor:
    """Return PPO's clipped loss of each token (arXiv 1707.06347), with two bounds (arXiv 2503.14476).

    Nothing is averaged here: summing over a batch and dividing by its tokens is the token-level mean.

    Args:
        logprobs_T: of the policy in training, shape [T], natural log; carries the gradient.
        sampled_T: of the distribution that the tokens were sampled from, shape [T].
        advantages_T: of each token's call, shape [T].
        clip_low: the ratio is clipped below at 1 - `clip_low`.
        clip_high: the ratio is clipped above at 1 + `clip_high`.

    Returns:
        Losses, shape [T].
    """
    ratio = _log_ratio(logprobs_T, sampled_T).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * advantages_T, clipped * advantages_T)


class RatioStats:
    """How far the policy in training is from the one that sampled; sums over micro-batches."""

    def __init__(self, clip_low: float, clip_high: float) -> None:
        self._low, self._high = 1 - clip_low, 1 + clip_high
        self._tokens = 0
        self._ratio = self._kl = self._clipped = self._largest = 0.0

    def add(self, logprobs_T: Tensor, sampled_T: Tensor, advantages_T: Tensor) -> None:
        """Count these tokens."""
        log_ratio = _log_ratio(logprobs_T.detach(), sampled_T)
        ratio = log_ratio.exp()
        idle = (ratio > self._high) & (advantages_T > 0) | (ratio < self._low) & (advantages_T < 0)
        self._tokens += ratio.numel()
        self._ratio += ratio.sum().item()
        self._kl += (ratio - 1 - log_ratio).sum().item()
        self._clipped += idle.sum().item()
        self._largest = max(self._largest, ratio.max().item())

    def metrics(self) -> dict[str, float]:
        """Return means over tokens: `ratio_mean`, `ratio_max`, `clip_fraction`, and `kl`.

        `kl` estimates KL(sampled || trained) in nats a token; it is never negative. `clip_fraction` is the share of
        tokens whose gradient the clip removed.
        """
        if not self._tokens:
            return {}
        return {
            "ratio_mean": self._ratio / self._tokens,
            "ratio_max": self._largest,
            "kl": self._kl / self._tokens,
            "clip_fraction": self._clipped / self._tokens,
        }


def _log_ratio(logprobs_T: Tensor, sampled_T: Tensor) -> Tensor:
    return (logprobs_T - sampled_T).clamp(-_LARGEST, _LARGEST)
