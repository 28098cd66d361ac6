"""Advantages: how much better something was than what it is compared with.

A comparison maps (values [N], group labels [N], member labels [N]) to advantages [N]. A credit strategy decides what is
compared: episodes, calls, or calls that started from the same state.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from leyden_algorithms.advantages.gdpo import gdpo
from leyden_algorithms.advantages.grpo import EPSILON, grpo
from leyden_algorithms.advantages.reinforce_plus_plus import reinforce_plus_plus, reinforce_plus_plus_baseline, whiten
from leyden_algorithms.advantages.rloo import rloo

Comparison = Callable[[Tensor, Tensor, Tensor], Tensor]
COMPARISONS: dict[str, Callable[..., Tensor]] = {
    "grpo": grpo,
    "dr_grpo": partial(grpo, scale=False),
    "rloo": rloo,
    "reinforce++": reinforce_plus_plus,
    "reinforce++_baseline": reinforce_plus_plus_baseline,
    "gdpo": gdpo,
}
"""(values [N], groups [N], members [N], options) -> advantages [N]."""
WITHIN_GROUPS = frozenset({"grpo", "dr_grpo", "rloo"})
"""Those that compare inside groups only. GiGPO needs one of these."""

__all__ = [
    "COMPARISONS",
    "EPSILON",
    "WITHIN_GROUPS",
    "Comparison",
    "gdpo",
    "grpo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "rloo",
    "whiten",
]
