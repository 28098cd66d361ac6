"""What people watch while a policy learns: how far it went from the one that it is measured against."""

import torch
from torch import Tensor

from leyden_algorithms.numbers import log_ratio

_SUMS = ("tokens", "ratio", "ratio_squared", "kl", "clipped_low", "clipped_high", "entropy", "entropy_tokens")


class RatioStats:
    """Ratio statistics over tokens. Sums over micro-batches, and over processes by `sums` and `largest`.

    Make one for current / old (what the loss clips) and, where they differ, one for old / sampled (what a correction
    weighs). For a loss that clips whole samples (GSPO), give it each sample's mean logprobs, spread over its tokens.
    Nothing is copied from the device before `metrics`.
    """

    def __init__(self, clip_low: float, clip_high: float) -> None:
        self._low, self._high = 1 - clip_low, 1 + clip_high
        self.sums = torch.zeros(len(_SUMS), dtype=torch.float64)
        """Add over processes (all-reduce SUM)."""
        self.largest = torch.zeros(1, dtype=torch.float64)
        """Take the maximum over processes (all-reduce MAX)."""

    def add(
        self, logprobs_T: Tensor, reference_T: Tensor, advantages_T: Tensor, entropies_T: Tensor | None = None
    ) -> None:
        """Count these tokens.

        Args:
            logprobs_T: of the policy in training.
            reference_T: of the policy that it is compared with.
            advantages_T: of each token's call; they decide which clipped tokens lose their gradient.
            entropies_T: of the policy in training, if known.
        """
        if not logprobs_T.numel():
            return
        log_T = log_ratio(logprobs_T.detach(), reference_T.detach()).double()
        ratio_T = log_T.exp()
        entropies_T = log_T.new_zeros(0) if entropies_T is None else entropies_T.detach().double()
        parts = [
            torch.ones_like(ratio_T),
            ratio_T,
            ratio_T.square(),
            ratio_T - 1 - log_T,
            (ratio_T < self._low) & (advantages_T < 0),
            (ratio_T > self._high) & (advantages_T > 0),
            entropies_T,
            torch.ones_like(entropies_T),
        ]
        self.sums = self.sums.to(ratio_T.device) + torch.stack([part.sum().double() for part in parts])
        self.largest = torch.maximum(self.largest.to(ratio_T.device), ratio_T.max())

    def metrics(self) -> dict[str, float]:
        """Return means over tokens; empty if there were none.

        `ratio_mean`, `ratio_max`; `kl`, an estimate of KL(reference || trained) in nats a token, never negative;
        `clip_fraction`, the share of tokens whose gradient the clip removed, and its parts `clip_fraction_low` and
        `clip_fraction_high`; `effective_samples`, the share of the tokens that as many equally weighted ones would be
        worth (Kish's effective sample size, 1 where all ratios are equal); `entropy` where it was given.
        """
        total = dict(zip(_SUMS, self.sums.tolist(), strict=True))
        tokens = total["tokens"]
        if not tokens:
            return {}
        found = {
            "ratio_mean": total["ratio"] / tokens,
            "ratio_max": self.largest.item(),
            "kl": total["kl"] / tokens,
            "clip_fraction": (total["clipped_low"] + total["clipped_high"]) / tokens,
            "clip_fraction_low": total["clipped_low"] / tokens,
            "clip_fraction_high": total["clipped_high"] / tokens,
            "effective_samples": total["ratio"] ** 2 / (total["ratio_squared"] * tokens),
        }
        return found | ({"entropy": total["entropy"] / total["entropy_tokens"]} if total["entropy_tokens"] else {})
