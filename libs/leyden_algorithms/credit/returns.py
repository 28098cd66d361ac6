"""Returns over the calls of an episode (Sutton and Barto, Reinforcement Learning, 2nd edition, section 3.3)."""

from itertools import pairwise

import torch
from torch import Tensor

from leyden_algorithms.types import Episodes


def returns_to_go(rewards_C: Tensor, calls_E: Tensor, discount: float) -> Tensor:
    """Return for each call the sum of its own and later rewards, each discounted once for every call in between.

    Args:
        rewards_C: of each call, shape [C].
        calls_E: calls of each episode; nothing flows from one episode to another.
        discount: from 0 to 1.
    """
    rewards, returns = rewards_C.tolist(), [0.0] * rewards_C.numel()
    for first, end in pairwise([0, *calls_E.cumsum(0).tolist()]):
        later = 0.0
        for i in reversed(range(first, end)):
            later = rewards[i] + discount * later
            returns[i] = later
    return torch.tensor(returns, dtype=rewards_C.dtype, device=rewards_C.device)


def call_rewards(episodes: Episodes) -> Tensor:
    """Return the reward of each call as a Markov decision process has it: its signal, and the episode's at the end."""
    reward_E = episodes.reward_E
    rewards_C = reward_E.new_zeros(int(episodes.calls_E.sum()))
    if episodes.signals_C is not None:
        rewards_C += episodes.signals_C
    rewards_C[episodes.calls_E.cumsum(0) - 1] += reward_E
    return rewards_C


def calls_left(calls_E: Tensor) -> Tensor:
    """Return how many calls of the same episode come after each call, shape [C]."""
    ends_C = torch.repeat_interleave(calls_E.cumsum(0), calls_E)
    return ends_C - 1 - torch.arange(ends_C.numel(), device=calls_E.device)
