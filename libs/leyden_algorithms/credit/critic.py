"""A learned critic over calls: generalised advantage estimation (arXiv 1506.02438, section 3), one step a call.

Agent Lightning (arXiv 2508.03680, section 3.3.2) leaves a learned value function over calls to later work. The value of
a call is what the episode is expected to earn from there, judged by the last token of the call's prompt.
"""

import torch
from torch import Tensor, nn

from leyden_algorithms.advantages import Comparison, whiten
from leyden_algorithms.credit.returns import call_rewards, returns_to_go
from leyden_algorithms.numbers import places, precise
from leyden_algorithms.types import Episodes


def gae(episodes: Episodes, *, discount: float = 1.0, trace: float = 0.95) -> Tensor:
    """Return the generalised advantage of each call, shape [C]: discounted sums of temporal differences.

    Nothing is expected after the last call. Gradients do not flow through `values_C`.

    Raises:
        ValueError: there are no values.
    """
    if episodes.values_C is None:
        raise ValueError("the critic needs the values of the calls")
    rewards_C = call_rewards(episodes)
    values_C = episodes.values_C.detach().to(rewards_C.dtype)
    next_C = torch.cat([values_C[1:], values_C.new_zeros(1)])
    next_C[episodes.calls_E.cumsum(0) - 1] = 0
    return returns_to_go(rewards_C + discount * next_C - values_C, episodes.calls_E, discount * trace)


def critic(
    episodes: Episodes,
    compare: Comparison | None = None,
    *,
    discount: float = 1.0,
    trace: float = 0.95,
    normalise: bool = True,
) -> Tensor:
    """Give each call its generalised advantage.

    Args:
        episodes: with `values_C`; rewards of the calls are `signals_C`, and the episode's reward at its last call.
        compare: not used: the critic is the baseline, so a group of one will do.
        discount: γ.
        trace: λ; 1 is the return minus the value, 0 the next call's value alone.
        normalise: over the batch, as PPO implementations do; every episode weighs the same.

    Returns:
        Advantages, shape [C].

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    advantages_C = gae(episodes, discount=discount, trace=trace)
    if not bool(torch.isfinite(advantages_C).all()):
        raise ValueError("a reward, signal or value is NaN or infinite: leave its episode out")
    return whiten(advantages_C, places(episodes.calls_E)) if normalise else advantages_C


def critic_targets(episodes: Episodes, *, discount: float = 1.0, trace: float = 0.95) -> Tensor:
    """Return what the critic should have expected at each call, shape [C]: advantage plus value."""
    advantages_C = gae(episodes, discount=discount, trace=trace)
    assert episodes.values_C is not None
    return advantages_C + episodes.values_C.detach().to(advantages_C.dtype)


class ValueHead(nn.Module):
    """Reads the value of a call from the hidden state of its prompt's last token. Starts at 0 everywhere."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_CH: Tensor) -> Tensor:
        """Map hidden states [C, H] to values [C], in float32 (or the head's own float64)."""
        return self.out(hidden_CH.to(self.out.weight.dtype)).squeeze(-1)


def value_loss(
    values_C: Tensor, targets_C: Tensor, old_values_C: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """Return half the squared error of each call, shape [C].

    With `clip`, a value gains nothing by moving further than that from `old_values_C`, as in PPO's reference code
    (arXiv 2005.12729, section 3).
    """
    values_C, targets_C = precise(values_C), precise(targets_C).detach()
    error_C = (values_C - targets_C).square()
    if clip is not None:
        if old_values_C is None:
            raise ValueError("a clipped value loss needs the values before the step")
        old_C = precise(old_values_C).detach()
        near_C = old_C + (values_C - old_C).clamp(-clip, clip)
        error_C = torch.maximum(error_C, (near_C - targets_C).square())
    return 0.5 * error_C
