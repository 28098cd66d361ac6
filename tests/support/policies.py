"""Random tokens under three policies, for tests of losses and corrections."""

import torch
from torch import Tensor

from leyden_algorithms import Tokens

LENGTHS = (5, 2, 7, 1, 3)
Rows = list[list[float]]


def make_tokens(
    seed: int = 0, lengths: tuple[int, ...] = LENGTHS, moved: float = 0.4, dtype: torch.dtype = torch.float64
) -> Tokens:
    """Draw logprobs; the policies differ by about `moved` a token. Advantages differ from sample to sample."""
    torch.manual_seed(seed)
    count = sum(lengths)
    old = -3 * torch.rand(count, dtype=torch.float64)
    current, sampled = (old + moved * torch.randn(count, dtype=torch.float64) for _ in range(2))
    advantages = torch.repeat_interleave(torch.randn(len(lengths), dtype=torch.float64), torch.tensor(lengths))
    return Tokens(
        current_T=current.to(dtype),
        old_T=old.to(dtype),
        sampled_T=sampled.to(dtype),
        advantages_T=advantages.to(dtype),
        lengths_S=torch.tensor(lengths),
    )


def rows(values_T: Tensor, lengths: tuple[int, ...] = LENGTHS) -> Rows:
    """Return the values of each sample as lists."""
    return [part.tolist() for part in values_T.detach().split(list(lengths))]
