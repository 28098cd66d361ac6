"""Which trajectories may be trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leyden_contracts import Algorithm, Trajectory, Transition, Verdict
from leyden_learner.staleness import is_stale


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


def select(trajectories: Sequence[Trajectory], rules: Rules) -> tuple[list[Rollout], str | None]:
    """Return the group's rollouts that may be trained on, or why the group is skipped."""
    whole = [rollout for trajectory in trajectories if (rollout := _rollout(trajectory, rules))]
    bound, least = rules.algorithm.max_staleness, rules.algorithm.least_episodes
    fresh = [rollout for rollout in whole if not is_stale(rollout.version, rules.version, bound)]
    if len(fresh) >= least:
        return fresh, None
    return [], "stale" if len(whole) >= least else "too_few_trajectories"


def _rollout(trajectory: Trajectory, rules: Rules) -> Rollout | None:
    calls = tuple(step for step in trajectory.transitions if step.role in rules.roles)
    known = trajectory.rewards.keys() >= rules.algorithm.rewards.keys()
    if trajectory.verdict is not Verdict.COMPLETE or not calls or not known:
        return None
    return Rollout(trajectory, calls) if all(_trainable(call, rules.vocabulary) for call in calls) else None


def _trainable(call: Transition, vocabulary: int) -> bool:
    prompt, response = (np.frombuffer(ids, dtype="<i4") for ids in (call.prompt_token_ids, call.response_token_ids))
    # A greedy call was sampled from no distribution that has a gradient.
    if not prompt.size or not response.size or call.temperature <= 0:
        return False
    largest = max(prompt.max(), response.max())
    return bool(largest < vocabulary) and len(call.response_logprobs) == len(call.response_token_ids)
