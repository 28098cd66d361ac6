"""GDPO (arXiv 2601.05242, section 3.1): several rewards are normalised apart before they are summed.

A sum normalised as one forgets which reward an episode earned: (1, 0) and (0, 1) look the same, and a reward that
varies little is drowned by one that varies much.
"""

import torch
from torch import Tensor

from leyden_algorithms.advantages.grpo import EPSILON, grpo
from leyden_algorithms.advantages.reinforce_plus_plus import whiten


def gdpo(
    values_NK: Tensor,
    groups_N: Tensor,
    members_N: Tensor,
    *,
    weights: tuple[float, ...] | None = None,
    batch_normalise: bool = True,
    epsilon: float = EPSILON,
) -> Tensor:
    """Normalise each reward in its group (as GRPO does), add them up, and normalise the sums over the batch.

    Args:
        values_NK: K rewards of each position, shape [N, K].
        groups_N: labels of the groups.
        members_N: labels of the members; each weighs the same.
        weights: of the K rewards; None: 1 each.
        batch_normalise: the paper's last stage, which keeps the size of advantages apart from the number of rewards.
        epsilon: added to each deviation.

    Returns:
        Advantages, shape [N]. A reward that is equal in a whole group adds 0 there.

    Raises:
        ValueError: a number is NaN or infinite, or there is not one weight for each reward.
    """
    if values_NK.dim() != 2:
        raise ValueError(f"GDPO needs several rewards for each episode, shape [E, K], not {tuple(values_NK.shape)}")
    factors = (1.0,) * values_NK.shape[1] if weights is None else weights
    if len(factors) != values_NK.shape[1]:
        raise ValueError(f"{len(factors)} weights for {values_NK.shape[1]} rewards")
    apart = [grpo(one_N, groups_N, members_N, epsilon=epsilon) for one_N in values_NK.unbind(1)]
    summed_N = torch.stack([factor * one_N for factor, one_N in zip(factors, apart, strict=True)]).sum(0)
    return whiten(summed_N, members_N, epsilon=epsilon) if batch_normalise else summed_N
