"""Which trajectories may be trained on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leyden_contracts import Algorithm, Trajectory, Transition, Verdict
from leyden_learner.staleness import is_stale

NO_TRAINED_CALLS = "no_trained_calls"
"""The agent made no call of a trained role."""
NO_REWARD = "no_reward"
"""The grader did not give one of the named rewards that are trained on."""
_OF_GROUPS = (str(Verdict.TEXT_ONLY), NO_TRAINED_CALLS, NO_REWARD)
"""Reasons that are told of a group where they are those of all its trajectories: more of the same will not help."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A trajectory that may be trained on, with the calls of the trained roles."""

    trajectory: Trajectory
    calls: tuple[Transition, ...]

    @property
    def version(self) -> int:
        """The oldest policy version that made a call."""
        return min(call.policy_version for call in self.calls)


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides which trajectories enter a batch."""

    algorithm: Algorithm
    roles: tuple[str, ...]
    """Only calls of these roles are trained on."""
    version: int
    """The learner's, before the step."""
    vocabulary: int
    """Token ids are below this."""


class Choice(NamedTuple):
    """What one group gives."""

    rollouts: list[Rollout]
    reason: str | None
    """Why the group is skipped; None: it is not."""
    dropped: Counter[str]
    """Why trajectories may not be trained on -> how many."""


def select(trajectories: Sequence[Trajectory], rules: Rules) -> Choice:
    """Choose the rollouts of one group that may be trained on."""
    judged = [_rollout(trajectory, rules) for trajectory in trajectories]
    whole = [rollout for rollout in judged if isinstance(rollout, Rollout)]
    dropped = Counter(reason for reason in judged if isinstance(reason, str))
    bound, least = rules.algorithm.max_staleness, rules.algorithm.least_episodes
    fresh = [rollout for rollout in whole if not is_stale(rollout.version, rules.version, bound)]
    if len(fresh) < len(whole):
        dropped["stale"] = len(whole) - len(fresh)
    if len(fresh) >= least:
        return Choice(fresh, None, dropped)
    if len(whole) >= least:
        return Choice([], "stale", dropped)
    alone = next((reason for reason in _OF_GROUPS if trajectories and dropped[reason] == len(trajectories)), None)
    return Choice([], alone or "too_few_trajectories", dropped)


def _rollout(trajectory: Trajectory, rules: Rules) -> Rollout | str:
    """Return the trajectory's rollout, or why it may not be trained on."""
    if trajectory.verdict is not Verdict.COMPLETE:
        return str(trajectory.verdict)
    calls = tuple(call for call in trajectory.transitions if call.role in rules.roles)
    if not calls:
        return NO_TRAINED_CALLS
    if not rules.algorithm.rewards.keys() <= trajectory.rewards.keys():
        return NO_REWARD
    return Rollout(trajectory, calls) if all(_trainable(call, rules.vocabulary) for call in calls) else "untrainable"


def _trainable(call: Transition, vocabulary: int) -> bool:
    prompt, response = (np.frombuffer(ids, dtype="<i4") for ids in (call.prompt_token_ids, call.response_token_ids))
    # A greedy call was sampled from no distribution that has a gradient.
    if not prompt.size or not response.size or call.temperature <= 0:
        return False
    largest = max(prompt.max(), response.max())
    return bool(largest < vocabulary) and len(call.response_logprobs) == len(call.response_token_ids)
