"""Estimates of KL(current || base) from sampled tokens (J. Schulman, Approximating KL Divergence, 2020).

The base is the model with its adapter switched off. Where the current policy sampled the tokens, k1 and k3 are
unbiased, and k3 is never negative. A loss is another matter, for its gradient does not see that sampling depends on
the policy: k2 has the gradient of KL(current || base), k3 (GRPO's, arXiv 2402.03300, equation 4) that of
KL(base || current), and k1 none on the average, so it belongs into the reward (REINFORCE++).
"""

from collections.abc import Callable

from torch import Tensor

from leyden_algorithms.numbers import log_ratio
from leyden_algorithms.types import Tokens


def k1(current_T: Tensor, base_T: Tensor) -> Tensor:
    """Return log(current / base) of each token, shape [T]."""
    return log_ratio(current_T, base_T)


def k2(current_T: Tensor, base_T: Tensor) -> Tensor:
    """Return half the squared log ratio of each token, shape [T]: low variance, some bias."""
    return 0.5 * log_ratio(current_T, base_T).square()


def k3(current_T: Tensor, base_T: Tensor) -> Tensor:
    """Return r - 1 - log r of each token, with r = base / current, shape [T]: low variance, no bias."""
    log_T = log_ratio(base_T, current_T)
    return log_T.exp() - 1 - log_T


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
"""(current logprobs [T], base logprobs [T]) -> estimates [T]."""
KL_LOSSES = frozenset({"k2", "k3"})
"""Those that mean something as a loss."""


def kl_loss(tokens: Tokens, base_T: Tensor, *, estimator: str = "k3", unbiased: bool = False) -> Tensor:
    """Return the penalty for leaving the base at each token, shape [T], before its coefficient.

    Args:
        tokens: of the policy in training.
        base_T: logprobs of the base; they carry no gradient.
        estimator: `k2` or `k3`.
        unbiased: multiply by current / old, gradient and all. Tokens then count as if the current policy had sampled
            them, and the gradient is that of KL(current || base) (DeepSeek-V3.2, arXiv 2512.02556, section 3.1).

    Raises:
        ValueError: the estimator has no useful gradient.
    """
    if estimator not in KL_LOSSES:
        raise ValueError(f"{estimator!r} teaches nothing as a loss: use {' or '.join(sorted(KL_LOSSES))}")
    penalty_T = KL_ESTIMATORS[estimator](tokens.current_T, base_T.detach())
    return penalty_T * log_ratio(tokens.current_T, tokens.old_T.detach()).exp() if unbiased else penalty_T
