"""REINFORCE++ (arXiv 2501.03262, section 3): advantages are normalised over the whole batch, not in small groups."""

import torch
from torch import Tensor

from leyden_algorithms.advantages.grpo import EPSILON, grpo


def whiten(values_N: Tensor, members_N: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """Return the numbers minus their mean, in standard deviations: one group for all. 0 where all are equal."""
    return grpo(values_N, torch.zeros_like(members_N), members_N, epsilon=epsilon)


def reinforce_plus_plus(values_N: Tensor, groups_N: Tensor, members_N: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """Return each number minus the batch's mean, in standard deviations of the batch. Groups do not matter.

    Works with one episode a task. The KL penalty that the paper puts into the reward is the caller's (`KL_ESTIMATORS`).

    Args:
        values_N: what is compared, shape [N]; of the whole batch, not of one process's share.
        groups_N: not used.
        members_N: labels of the members; each weighs the same.
        epsilon: added to the deviation.

    Returns:
        Advantages, shape [N]; exactly 0 in a batch of one, and where all numbers are equal.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return whiten(values_N, members_N, epsilon=epsilon)


def reinforce_plus_plus_baseline(
    values_N: Tensor, groups_N: Tensor, members_N: Tensor, *, epsilon: float = EPSILON
) -> Tensor:
    """Return each number minus its group's mean, in standard deviations of these differences over the batch.

    The variant for several episodes a task. Arguments and errors are those of `reinforce_plus_plus`.
    """
    return whiten(grpo(values_N, groups_N, members_N, scale=False), members_N, epsilon=epsilon)
