"""Credit assignment: how an episode's reward is spread over its LLM calls (arXiv 2508.03680, section 3.3)."""

import torch
from torch import Tensor


def identical_credit(rewards_E: Tensor, calls_E: Tensor) -> Tensor:
    """Give each call the whole reward of its episode (LightningRL's choice).

    Args:
        rewards_E: one reward for each episode, shape [E].
        calls_E: how many calls each episode made, integers, shape [E].

    Returns:
        Credit of the calls, episode by episode, shape [C].
    """
    return torch.repeat_interleave(rewards_E, calls_E)
