"""GiGPO: group-in-group policy optimisation (arXiv 2505.10978, section 4).

Episodes of one task often pass through the same state. Calls that were shown the same thing (the anchor state) but
answered differently are a group of their own, at no cost: what followed tells the better answer.
"""

from dataclasses import replace

import torch
from torch import Tensor

from leyden_algorithms.advantages import Comparison
from leyden_algorithms.credit.identical import identical
from leyden_algorithms.credit.returns import call_rewards, returns_to_go
from leyden_algorithms.credit.step_rewards import total_rewards
from leyden_algorithms.groups import group_labels
from leyden_algorithms.numbers import spread
from leyden_algorithms.types import Episodes


def gigpo(episodes: Episodes, compare: Comparison, *, weight: float = 1.0, discount: float = 0.95) -> Tensor:
    """Add the advantage of the episode in its group and that of the call among calls from the same state.

    The paper's two normalisations come with the comparison: `grpo` divides by the deviation (F_norm = std), `dr_grpo`
    does not (F_norm = 1). Both levels use it, so it must be one of `WITHIN_GROUPS`.

    Args:
        episodes: with `states_C`; the step's rewards are `signals_C`, and the episode's reward at its last call.
        compare: how both levels compare.
        weight: ω of equation 8, how much the step level counts.
        discount: γ of equation 6, from a call to what follows it.

    Returns:
        Advantages, shape [C]. A call whose state nobody else met has the episode's advantage alone.

    Raises:
        ValueError: there are no states.
    """
    if episodes.states_C is None:
        raise ValueError("GiGPO needs the states of the calls")
    episode_level_C = identical(replace(episodes, rewards_E=total_rewards(episodes)), compare)
    returns_C = returns_to_go(call_rewards(episodes), episodes.calls_E, discount)
    task_C = spread(episodes.groups_E, episodes.calls_E)
    anchor_C = group_labels(task_C.tolist(), episodes.states_C.tolist()).to(task_C.device)
    # An episode that comes back to a state is a member for each of its visits.
    member_C = torch.arange(anchor_C.numel(), device=anchor_C.device)
    return episode_level_C + weight * compare(returns_C, anchor_C, member_C)
