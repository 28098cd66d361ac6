"""Credit assignment: how an episode's reward is spread over its LLM calls (arXiv 2508.03680, section 3.3.2).

A strategy maps (`Episodes`, comparison) to advantages [C]: it decides what is compared, and the comparison how.
"""

from collections.abc import Callable

from torch import Tensor

from leyden_algorithms.credit.critic import ValueHead, critic, critic_targets, gae, value_loss
from leyden_algorithms.credit.discounted import discounted
from leyden_algorithms.credit.gigpo import gigpo
from leyden_algorithms.credit.identical import identical
from leyden_algorithms.credit.returns import returns_to_go
from leyden_algorithms.credit.ridge import fit_values
from leyden_algorithms.credit.step_rewards import step_rewards

CREDIT_STRATEGIES: dict[str, Callable[..., Tensor]] = {
    "identical": identical,
    "discounted": discounted,
    "step_rewards": step_rewards,
    "gigpo": gigpo,
    "critic": critic,
}
"""(episodes, comparison, options) -> advantages [C]."""

__all__ = [
    "CREDIT_STRATEGIES",
    "ValueHead",
    "critic",
    "critic_targets",
    "discounted",
    "fit_values",
    "gae",
    "gigpo",
    "identical",
    "returns_to_go",
    "step_rewards",
    "value_loss",
]
