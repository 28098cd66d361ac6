"""Discounted credit: the earlier a call, the less it answers for the end.

The discount over time of Sutton and Barto, Reinforcement Learning, 2nd edition, section 3.3, over calls.
"""

from torch import Tensor

from leyden_algorithms.advantages import Comparison
from leyden_algorithms.credit.identical import identical
from leyden_algorithms.credit.returns import calls_left
from leyden_algorithms.types import Episodes


def discounted(episodes: Episodes, compare: Comparison, *, discount: float = 0.9) -> Tensor:
    """Give each call its episode's advantage, times `discount` for every call after it.

    The advantage is discounted, not the reward: a reward discounted before the group's mean is taken away would blame
    early calls of good episodes for being early.

    Returns:
        Advantages, shape [C]. With `discount` 1 they are those of `identical`.
    """
    advantages_C = identical(episodes, compare)
    return advantages_C * discount ** calls_left(episodes.calls_E).to(advantages_C.dtype)
