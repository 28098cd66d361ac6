"""Advantages: how much better a call was than its group."""

from torch import Tensor

EPSILON = 1e-6
"""Keeps the division finite where all rewards are nearly equal."""


def grpo_advantages(credit_C: Tensor, rewards_E: Tensor) -> Tensor:
    """Compare each call's credit with the rewards of its group's episodes (GRPO, arXiv 2402.03300, section 4.1).

    The baseline is taken over episodes, not calls: an episode of many calls does not move it more than another.

    Args:
        credit_C: credit of the group's calls, shape [C].
        rewards_E: rewards of the group's episodes, shape [E], E at least 2.

    Returns:
        Advantages, shape [C], in standard deviations (with Bessel's correction) of the rewards.
    """
    return (credit_C - rewards_E.mean()) / (rewards_E.std() + EPSILON)
