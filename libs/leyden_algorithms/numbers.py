"""Safe arithmetic that every objective shares: precision, bounded ratios, sums over samples."""

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Bound of a log ratio: keeps one wild token from making the whole gradient infinite."""


def precise(values: Tensor) -> Tensor:
    """Return float32 of anything shorter; float64 stays."""
    return values if values.dtype == torch.float64 else values.float()


def log_ratio(above_T: Tensor, below_T: Tensor) -> Tensor:
    """Return log(above / below) of two logprobs, within ±20. Outside that bound there is no gradient."""
    return (precise(above_T) - precise(below_T)).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def spread(values_S: Tensor, lengths_S: Tensor) -> Tensor:
    """Repeat each sample's value for each of its tokens (or each episode's for each of its calls): [S] -> [T]."""
    return torch.repeat_interleave(values_S, lengths_S, dim=0)


def places(lengths_S: Tensor) -> Tensor:
    """Return which sample (or episode) each token (or call) belongs to: integers, shape [T]."""
    return spread(torch.arange(lengths_S.numel(), device=lengths_S.device), lengths_S)


def sums(values_T: Tensor, lengths_S: Tensor) -> Tensor:
    """Sum the values of each sample: [T] -> [S]. The order of summation is fixed, on a GPU too."""
    return torch.segment_reduce(values_T, "sum", lengths=lengths_S, initial=0)


def means(values_T: Tensor, lengths_S: Tensor) -> Tensor:
    """Average the values of each sample: [T] -> [S]; 0 for a sample without tokens."""
    return sums(values_T, lengths_S) / lengths_S.clamp(min=1)
