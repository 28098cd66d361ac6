"""Step rewards: each call answers for the episode and for what it and later calls earned on the way.

Outcome and process supervision together (arXiv 2402.03300, section 4.1.3), over calls instead of reasoning steps; the
rewards on the way are those of automatic intermediate rewarding (arXiv 2508.03680, section 3.4.2).
"""

import torch
from torch import Tensor

from leyden_algorithms.advantages import Comparison
from leyden_algorithms.credit.returns import returns_to_go
from leyden_algorithms.numbers import places, spread
from leyden_algorithms.types import Episodes


def step_rewards(episodes: Episodes, compare: Comparison, *, discount: float = 1.0) -> Tensor:
    """Compare the calls of each group by the episode's reward plus the discounted signals from that call on.

    The episode's reward is not discounted. Every episode weighs the same in the baseline, however many calls it made.
    Without signals this is `identical`.

    Returns:
        Advantages, shape [C].
    """
    calls_E = episodes.calls_E
    returns_C = spread(episodes.reward_E, calls_E)
    if episodes.signals_C is not None:
        returns_C = returns_C + returns_to_go(episodes.signals_C.to(returns_C.dtype), calls_E, discount)
    return compare(returns_C, spread(episodes.groups_E, calls_E), places(calls_E))


def total_rewards(episodes: Episodes) -> Tensor:
    """Return each episode's reward plus all its signals, shape [E]."""
    if episodes.signals_C is None:
        return episodes.reward_E
    sums_E = torch.zeros_like(episodes.reward_E)
    return episodes.reward_E + sums_E.index_add(0, places(episodes.calls_E), episodes.signals_C.to(sums_E.dtype))
