"""RLOO: REINFORCE with a leave-one-out baseline (arXiv 2402.14740, section 2.3, after Kool et al. 2019)."""

from torch import Tensor

from leyden_algorithms.groups import moments


def rloo(values_N: Tensor, groups_N: Tensor, members_N: Tensor) -> Tensor:
    """Return each number minus the mean of the group's *other* members: an unbiased baseline.

    Args:
        values_N: what is compared, shape [N].
        groups_N: labels of the groups.
        members_N: labels of the members; a member's own numbers, all of them, stay out of its baseline.

    Returns:
        Advantages, shape [N]; exactly 0 in a group of one, and where all numbers of a group are equal.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    found = moments(values_N, groups_N, members_N)
    # With M members: mean - others' mean = (own - mean) / (M - 1).
    return found.centred_N + found.own_N / (found.members_N - 1).clamp(min=1)
