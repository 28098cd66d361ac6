"""LightningRL's own credit assignment (arXiv 2508.03680, section 3.3.2): every call answers for the whole episode."""

import torch
from torch import Tensor

from leyden_algorithms.advantages import Comparison
from leyden_algorithms.numbers import spread
from leyden_algorithms.types import Episodes


def identical(episodes: Episodes, compare: Comparison) -> Tensor:
    """Compare the episodes of each group, and give each call its episode's advantage.

    Returns:
        Advantages, shape [C].
    """
    members_E = torch.arange(episodes.calls_E.numel(), device=episodes.calls_E.device)
    return spread(compare(episodes.rewards_E, episodes.groups_E, members_E), episodes.calls_E)
