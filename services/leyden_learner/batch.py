"""From the trajectories of finished groups to what one optimizer step trains on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from leyden_algorithms import ADVANTAGES, CREDITS
from leyden_contracts import Algorithm, Control, Trajectory, Transition, Verdict
from leyden_learner.staleness import is_stale

NO_TRAINED_CALLS = "no_trained_calls"
"""The agent made no call of the trained role."""
_OF_GROUPS = (str(Verdict.TEXT_ONLY), NO_TRAINED_CALLS)
"""Reasons that are told of a group where they are those of all its trajectories: more of the same will not help."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides which trajectories enter a batch."""

    algorithm: Algorithm
    role: str
    """Only this role's calls are trained on."""
    version: int
    """The learner's, before the step."""
    vocabulary: int
    """Token ids are below this."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A trajectory that may be trained on, with the calls of the trained role."""

    trajectory: Trajectory
    calls: tuple[Transition, ...]

    @property
    def version(self) -> int:
        """The oldest policy version that made a call."""
        return min(call.policy_version for call in self.calls)


@dataclass(frozen=True, slots=True)
class Sample:
    """One call as the step needs it."""

    tokens: Tensor
    """Prompt and response, int64, shape [P + R]."""
    sampled_logprobs: Tensor
    """Of the response, float32, shape [R]."""
    temperature: float
    advantage: float

    @property
    def prompt_length(self) -> int:
        """P."""
        return self.tokens.numel() - self.sampled_logprobs.numel()

    @property
    def response(self) -> Tensor:
        """Token ids of the response, shape [R]."""
        return self.tokens[self.prompt_length :]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step trains on; `samples` is empty where no group gave a signal."""

    groups: tuple[str, ...]
    skipped: dict[str, str]
    """Group -> why it is not in the batch."""
    dropped: dict[str, int]
    """Why trajectories may not be trained on -> how many."""
    rollouts: tuple[Rollout, ...]
    """Everything fresh and whole, also of groups without a signal."""
    episodes: tuple[str, ...]
    """Those that are trained on."""
    samples: tuple[Sample, ...]


class Choice(NamedTuple):
    """What one group gives."""

    rollouts: list[Rollout]
    reason: str | None
    """Why the group is skipped; None: it is not."""
    dropped: Counter[str]
    """Why trajectories may not be trained on -> how many."""


Groups = Sequence[tuple[str, Sequence[Trajectory]]]
"""Group id -> the trajectories of its episodes that succeeded."""
_Selected = list[tuple[str, list[Rollout]]]


def build_batch(groups: Groups, rules: Rules, generator: torch.Generator) -> Batch:
    """Choose what is trained on, and give each call its advantage.

    Args:
        groups: the groups of this step, in order.
        rules: see `Rules`.
        generator: shuffles rewards where the run's control asks for that; not used otherwise.
    """
    skipped: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    selected: _Selected = []
    for group, trajectories in groups:
        choice = select(trajectories, rules)
        dropped += choice.dropped
        if choice.reason:
            skipped[group] = choice.reason
        else:
            selected.append((group, choice.rollouts))
    episodes: list[str] = []
    samples: list[Sample] = []
    for (group, rollouts), rewards_E in zip(selected, _rewards(selected, rules, generator), strict=True):
        if bool((rewards_E == rewards_E[0]).all()):
            skipped[group] = "equal_rewards"
            continue
        episodes += [rollout.trajectory.episode for rollout in rollouts]
        samples += _samples(rollouts, rewards_E, rules.algorithm)
    every = tuple(rollout for _, rollouts in selected for rollout in rollouts)
    return Batch(tuple(group for group, _ in groups), skipped, dict(dropped), every, tuple(episodes), tuple(samples))


def select(trajectories: Sequence[Trajectory], rules: Rules) -> Choice:
    """Choose the rollouts of one group that may be trained on."""
    judged = [_rollout(trajectory, rules) for trajectory in trajectories]
    whole = [rollout for rollout in judged if isinstance(rollout, Rollout)]
    dropped = Counter(reason for reason in judged if isinstance(reason, str))
    bound = rules.algorithm.max_staleness
    fresh = [rollout for rollout in whole if not is_stale(rollout.version, rules.version, bound)]
    if len(fresh) < len(whole):
        dropped["stale"] = len(whole) - len(fresh)
    if len(fresh) >= 2:
        return Choice(fresh, None, dropped)
    if len(whole) >= 2:
        return Choice([], "stale", dropped)
    alone = next((reason for reason in _OF_GROUPS if trajectories and dropped[reason] == len(trajectories)), None)
    return Choice([], alone or "too_few_trajectories", dropped)


def _rollout(trajectory: Trajectory, rules: Rules) -> Rollout | str:
    """Return the trajectory's rollout, or why it may not be trained on."""
    if trajectory.verdict is not Verdict.COMPLETE:
        return str(trajectory.verdict)
    calls = tuple(call for call in trajectory.transitions if call.role == rules.role)
    if not calls:
        return NO_TRAINED_CALLS
    return Rollout(trajectory, calls) if all(_trainable(call, rules.vocabulary) for call in calls) else "untrainable"


def _trainable(call: Transition, vocabulary: int) -> bool:
    prompt, response = _ids(call.prompt_token_ids), _ids(call.response_token_ids)
    # A greedy call was sampled from no distribution that has a gradient.
    if not prompt.size or not response.size or call.temperature <= 0:
        return False
    largest = max(prompt.max(), response.max())
    return bool(largest < vocabulary) and len(call.response_logprobs) == len(call.response_token_ids)


def _rewards(selected: _Selected, rules: Rules, generator: torch.Generator) -> list[Tensor]:
    rewards = [[rollout.trajectory.reward for rollout in rollouts] for _, rollouts in selected]
    flat = torch.tensor([reward for group in rewards for reward in group], dtype=torch.float64)
    if rules.algorithm.control is Control.SHUFFLED_REWARDS:
        flat = flat[torch.randperm(flat.numel(), generator=generator)]
    return list(flat.split([len(group) for group in rewards])) if rewards else []


def _samples(rollouts: Sequence[Rollout], rewards_E: Tensor, algorithm: Algorithm) -> list[Sample]:
    calls_E = torch.tensor([len(rollout.calls) for rollout in rollouts])
    credit_C = CREDITS[algorithm.credit](rewards_E, calls_E)
    advantages_C = ADVANTAGES[algorithm.advantage](credit_C, rewards_E)
    calls = [call for rollout in rollouts for call in rollout.calls]
    return [_sample(call, advantage) for call, advantage in zip(calls, advantages_C.tolist(), strict=True)]


def _sample(call: Transition, advantage: float) -> Sample:
    tokens = np.concatenate([_ids(call.prompt_token_ids), _ids(call.response_token_ids)]).astype(np.int64)
    logprobs = np.frombuffer(call.response_logprobs, dtype="<f4").astype(np.float32)
    return Sample(torch.from_numpy(tokens), torch.from_numpy(logprobs), call.temperature, advantage)


def _ids(packed: bytes) -> np.ndarray:
    return np.frombuffer(packed, dtype="<i4")
