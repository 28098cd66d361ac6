"""Who is compared with whom: labels of groups, and their means and deviations."""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def group_labels(*keys: Sequence[Hashable]) -> Tensor:
    """Number the groups: `group_labels(tasks)` groups by task, `group_labels(tasks, roles)` by task and role.

    Returns:
        Integers, one for each position; equal where all keys are equal.
    """
    numbers: dict[tuple[Hashable, ...], int] = {}
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in zip(*keys, strict=True)], dtype=torch.int64)


def state_hash(prompt: bytes) -> int:
    """Return the same int64 for the same prompt (packed token ids), in every process."""
    return int.from_bytes(hashlib.blake2b(prompt, digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True, slots=True)
class Moments:
    """Of each position's group; every member weighs the same, however many numbers it has."""

    centred_N: Tensor
    """The number minus the group's mean. Exactly 0 for a group of one, and where all its numbers are equal."""
    std_N: Tensor
    """The group's standard deviation, with Bessel's correction over members; 0 for a group of one."""
    members_N: Tensor
    """How many members the group has."""
    own_N: Tensor
    """The mean of the member's own numbers, minus the group's mean."""


def moments(values_N: Tensor, groups_N: Tensor, members_N: Tensor) -> Moments:
    """Compute mean and deviation of each group.

    Args:
        values_N: the numbers, shape [N].
        groups_N: labels; equal labels are one group.
        members_N: labels; whose number it is (the episode's, where numbers are of calls).

    Raises:
        ValueError: the numbers are not of shape [N], or one is NaN or infinite. No number could stand for it: a failure
            is never a reward.
    """
    if values_N.dim() != 1:
        raise ValueError(f"expected one number for each position, not shape {tuple(values_N.shape)}")
    if not bool(torch.isfinite(values_N).all()):
        raise ValueError("a reward, signal or value is NaN or infinite: leave its episode out")
    # M: members of groups. Whoever is in two groups is a member of each.
    group_N = _numbered(groups_N)
    pairs_M2, member_N = torch.unique(torch.stack([group_N, members_N], 1), dim=0, return_inverse=True)
    group_M = pairs_M2[:, 0]
    numbers_M, members_G = torch.bincount(member_N), torch.bincount(group_M)
    own_M = _sum(values_N, member_N) / numbers_M
    mean_N = (_sum(own_M, group_M) / members_G)[group_N]
    squares_M = _sum((values_N - mean_N).square(), member_N) / numbers_M
    variance_G = _sum(squares_M, group_M) / (members_G - 1).clamp(min=1)
    # Rounding must not make an advantage out of nothing: it would be divided by a tiny deviation.
    idle_N = ((members_G == 1) | _equal(values_N, group_N))[group_N]
    return Moments(
        centred_N=(values_N - mean_N).masked_fill(idle_N, 0),
        std_N=variance_G.sqrt()[group_N].masked_fill(idle_N, 0),
        members_N=members_G[group_N],
        own_N=(own_M[member_N] - mean_N).masked_fill(idle_N, 0),
    )


def _numbered(labels_N: Tensor) -> Tensor:
    """Replace labels by numbers from 0, with none left out."""
    return torch.unique(labels_N, return_inverse=True)[1]


def _count(number_N: Tensor) -> int:
    return int(number_N.max()) + 1 if number_N.numel() else 0


def _sum(values_N: Tensor, number_N: Tensor) -> Tensor:
    return values_N.new_zeros(_count(number_N)).index_add(0, number_N, values_N)


def _equal(values_N: Tensor, group_N: Tensor) -> Tensor:
    """Return for each group whether all its numbers are equal, but for what rounding does."""
    low_G, high_G = (values_N.new_zeros(_count(group_N)) for _ in range(2))
    low_G.scatter_reduce_(0, group_N, values_N, "amin", include_self=False)
    high_G.scatter_reduce_(0, group_N, values_N, "amax", include_self=False)
    largest_G = torch.maximum(low_G.abs(), high_G.abs())
    return high_G - low_G <= 4 * torch.finfo(values_N.dtype).eps * largest_G
