"""GRPO (arXiv 2402.03300, section 4.1.2), and Dr. GRPO (arXiv 2503.20783, section 3.2), which does not scale."""

from torch import Tensor

from leyden_algorithms.groups import moments

EPSILON = 1e-6
"""Keeps the division finite where all rewards are nearly equal."""


def grpo(
    values_N: Tensor, groups_N: Tensor, members_N: Tensor, *, scale: bool = True, epsilon: float = EPSILON
) -> Tensor:
    """Return each number minus its group's mean, in standard deviations of the group.

    Args:
        values_N: what is compared, shape [N].
        groups_N: labels of the groups.
        members_N: labels of the members; each member weighs the same in the mean and the deviation.
        scale: False leaves the deviation out, so that an easy task weighs no more than an even one (Dr. GRPO).
        epsilon: added to the deviation.

    Returns:
        Advantages, shape [N]; exactly 0 in a group of one, and where all numbers of a group are equal.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    found = moments(values_N, groups_N, members_N)
    return found.centred_N / (found.std_N + epsilon) if scale else found.centred_N
