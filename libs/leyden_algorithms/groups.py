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
    """The number minus the group's mean. Exactly 0 where the group has one member, or all its numbers are equal."""
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
    pairs, pair_N = torch.unique(torch.stack([groups_N, members_N], 1), dim=0, return_inverse=True)
    group_N = torch.unique(groups_N, return_inverse=True)[1]
    group_P = torch.unique(pairs[:, 0], return_inverse=True)[1]
    members_G = torch.bincount(group_P)
    own_P = _sum(values_N, pair_N) / torch.bincount(pair_N)
    mean_G = _sum(own_P, group_P) / members_G
    weight_N = 1 / torch.bincount(pair_N)[pair_N].to(values_N.dtype)
    variance_G = _sum(weight_N * (values_N - mean_G[group_N]).square(), group_N) / (members_G - 1).clamp(min=1)
    # Rounding must not make an advantage out of nothing: it would be divided by a tiny deviation.
    idle_N = ((members_G == 1) | _equal(values_N, group_N))[group_N]
    return Moments(
        (values_N - mean_G[group_N]).masked_fill(idle_N, 0),
        variance_G.sqrt()[group_N].masked_fill(idle_N, 0),
        members_G[group_N],
        (own_P[pair_N] - mean_G[group_N]).masked_fill(idle_N, 0),
    )


def _sum(values_N: Tensor, label_N: Tensor) -> Tensor:
    return values_N.new_zeros(int(label_N.max()) + 1 if label_N.numel() else 0).index_add(0, label_N, values_N)


def _equal(values_N: Tensor, group_N: Tensor) -> Tensor:
    """Return for each group whether all its numbers are equal."""
    count = int(group_N.max()) + 1 if group_N.numel() else 0
    low, high = (values_N.new_zeros(count) for _ in range(2))
    low.scatter_reduce_(0, group_N, values_N, "amin", include_self=False)
    high.scatter_reduce_(0, group_N, values_N, "amax", include_self=False)
    return low == high
