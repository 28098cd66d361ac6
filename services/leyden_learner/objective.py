"""A run's objective: the strategies that its specification names, put together."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from leyden_algorithms import (
    AGGREGATIONS,
    COMPARISONS,
    CORRECTIONS,
    CREDIT_STRATEGIES,
    KL_ESTIMATORS,
    TOKEN_LOSSES,
    Correction,
    Episodes,
    RatioStats,
    Tokens,
    Totals,
    critic_targets,
    entropy_bonus,
)
from leyden_algorithms.numbers import means, spread
from leyden_contracts import Algorithm


class Objective:
    """What one step minimises, and what is to be watched of it."""

    def __init__(self, algorithm: Algorithm) -> None:
        low, high = algorithm.clip
        self._low, self._high = low, high
        self._entropy, self._kl = algorithm.entropy_bonus, algorithm.kl
        self._estimate = KL_ESTIMATORS[algorithm.kl_estimator]
        self._compare = _comparison(algorithm)
        self._credit = _credit(algorithm)
        self._discount = algorithm.discount or 1.0
        self._loss: Callable[[Tokens], Tensor] = partial(TOKEN_LOSSES[algorithm.loss], clip_low=low, clip_high=high)
        self._correct = _correction(algorithm)
        length = {"length": algorithm.average_length} if algorithm.average_length else {}
        self._average: Callable[..., Tensor] = partial(AGGREGATIONS[algorithm.average], **length)
        self._by_reply = algorithm.loss in ("gspo", "gspo_token")
        self.needs_old = algorithm.correction != "none"
        """Whether the learner's own logprobs before the step are needed; else the engine's stand in for them."""
        self.needs_base = algorithm.kl > 0
        self.needs_entropy = algorithm.entropy_bonus > 0

    def advantages(self, episodes: Episodes) -> Tensor:
        """Return the advantage of each call, shape [C]."""
        return self._credit(episodes, self._compare)

    def returns(self, episodes: Episodes) -> Tensor:
        """Return what each call turned out to be worth, shape [C]: what a critic learns.

        It learns whole returns, whatever the trace of the advantages: a fresh head that learned from its own guesses
        would be slow to forget them (VC-PPO, arXiv 2503.01491: decoupled GAE).
        """
        return critic_targets(episodes, discount=self._discount, trace=1.0)

    def correction(self, tokens: Tokens) -> Correction:
        """Return the weight of each token, shape [T], and what was dropped."""
        return self._correct(tokens)

    def share(self, tokens: Tokens, totals: Totals, base_T: Tensor | None, entropies_T: Tensor | None) -> Tensor:
        """Return what some samples add to the loss of a step of `totals`.

        Args:
            tokens: of these samples.
            totals: of the step.
            base_T: logprobs by the base model, where they are needed.
            entropies_T: of each token's distribution, where they are needed.
        """
        if not tokens.lengths_S.numel():
            # Of an idle pass: nothing, with a backward pass.
            return tokens.current_T.sum()
        losses_T = self._loss(tokens) * self._correct(tokens).weights_T
        if base_T is not None:
            losses_T = losses_T + self._kl * self._estimate(tokens.current_T, base_T)
        if entropies_T is not None:
            losses_T = losses_T + entropy_bonus(entropies_T, self._entropy)
        return self._average(losses_T, tokens.lengths_S, totals)

    def stats(self, lengths_S: Tensor, policy_T: Tensor, reference_T: Tensor, *rest: Tensor | None) -> RatioStats:
        """Return how far a policy is from another one, by this objective's bounds; `rest` as of `RatioStats.add`.

        Where replies share one ratio, it is the one that counts: the mean over the reply's tokens.
        """
        stats = RatioStats(self._low, self._high)
        if self._by_reply:
            policy_T, reference_T = (spread(means(one, lengths_S), lengths_S) for one in (policy_T, reference_T))
        stats.add(policy_T, reference_T, *rest)
        return stats


def _comparison(algorithm: Algorithm) -> Callable[..., Tensor]:
    weights = {"weights": tuple(algorithm.rewards.values())} if algorithm.advantage == "gdpo" else {}
    return partial(COMPARISONS[algorithm.advantage], **weights)


def _credit(algorithm: Algorithm) -> Callable[..., Tensor]:
    options: dict[str, Any] = {"discount": algorithm.discount, "weight": algorithm.step_weight}
    options["trace"] = algorithm.critic.trace if algorithm.critic else None
    given = {name: one for name, one in options.items() if one is not None}
    return partial(CREDIT_STRATEGIES[algorithm.credit], **given)


def _correction(algorithm: Algorithm) -> Callable[[Tokens], Correction]:
    low, high = algorithm.correction_bounds
    one_sided = algorithm.correction in ("tis", "mis")
    options = {"ceiling": high} if one_sided else {"low": low, "high": high}
    if algorithm.correction == "none":
        options = {}
    return partial(CORRECTIONS[algorithm.correction], **options)
