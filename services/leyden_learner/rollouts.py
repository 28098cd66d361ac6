"""Which trajectories may be trained on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leyden_contracts import Algorithm, Selection, Trajectory, Transition, Verdict
from leyden_learner.staleness import is_stale

NO_TRAINED_CALLS = "no_trained_calls"
"""The agent made no call of a trained role."""
NO_REWARD = "no_reward"
"""The grader did not give one of the named rewards that are trained on."""
TOO_LONG = "too_long"
"""A call of a trained role is longer than `selection` allows, as a prompt or as a reply."""
_OF_GROUPS = (str(Verdict.TEXT_ONLY), NO_TRAINED_CALLS, NO_REWARD, TOO_LONG)
"""Reasons that are told of a group where they are those of all its trajectories: more of the same will not help."""

_TOKEN_BYTES = 4


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
    """Fresh and whole; trained on unless there is a reason not to."""
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
        return Choice(fresh, _difficulty(fresh, rules.algorithm.selection), dropped)
    if len(whole) >= least:
        return Choice([], "stale", dropped)
    alone = next((reason for reason in _OF_GROUPS if trajectories and dropped[reason] == len(trajectories)), None)
    return Choice([], alone or "too_few_trajectories", dropped)


def _difficulty(rollouts: Sequence[Rollout], selection: Selection) -> str | None:
    """Say whether the group's share of successes is out of what is trained on, and how."""
    successes = sum(rollout.trajectory.reward >= selection.success_reward for rollout in rollouts)
    share = successes / len(rollouts)
    if selection.too_hard(share):
        return "too_hard"
    return "too_easy" if selection.too_easy(share) else None


def _rollout(trajectory: Trajectory, rules: Rules) -> Rollout | str:
    """Return the trajectory's rollout, or why it may not be trained on."""
    if trajectory.verdict is not Verdict.COMPLETE:
        return str(trajectory.verdict)
    calls = tuple(call for call in trajectory.transitions if call.role in rules.roles)
    if not calls:
        return NO_TRAINED_CALLS
    if not rules.algorithm.rewards.keys() <= trajectory.rewards.keys():
        return NO_REWARD
    if not all(_trainable(call, rules.vocabulary) for call in calls):
        return "untrainable"
    return Rollout(trajectory, calls) if all(_fits(call, rules.algorithm.selection) for call in calls) else TOO_LONG


def _fits(call: Transition, selection: Selection) -> bool:
    """Say whether prompt and reply are short enough."""
    limits = (call.prompt_token_ids, selection.longest_prompt), (call.response_token_ids, selection.longest_reply)
    return all(most is None or len(ids) <= most * _TOKEN_BYTES for ids, most in limits)


def _trainable(call: Transition, vocabulary: int) -> bool:
    prompt, response = (np.frombuffer(ids, dtype="<i4") for ids in (call.prompt_token_ids, call.response_token_ids))
    # A greedy call was sampled from no distribution that has a gradient.
    if not prompt.size or not response.size or call.temperature <= 0:
        return False
    largest = max(prompt.max(), response.max())
    return bool(largest < vocabulary) and len(call.response_logprobs) == len(call.response_token_ids)
