"""From the trajectories of finished groups to what one optimizer step trains on."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leyden_algorithms import Episodes, group_labels, state_hash
from leyden_contracts import Algorithm, Control, Trajectory, Transition
from leyden_learner.critics import Judge, Lesson, make_lessons
from leyden_learner.objective import Objective
from leyden_learner.rollouts import Rollout, Rules, select
from leyden_learner.samples import Sample, make_sample

Groups = Sequence[tuple[str, Sequence[Trajectory]]]
"""Group id -> the trajectories of its episodes that succeeded."""


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
    """Of all roles."""
    lessons: tuple[Lesson, ...] = ()
    """What critics learn from this step, where the run has them: all calls of `rollouts`."""

    def skipped_if(self, refused: bool) -> dict[str, str]:
        """Return why groups are not trained on; where the step was refused, that is so of all of them."""
        broken = dict.fromkeys(self.groups, "not_finite") if refused else {}
        return broken | self.skipped

    def of(self, role: str) -> tuple[Sample, ...]:
        """Return the samples of one role."""
        return tuple(sample for sample in self.samples if sample.role == role)


@dataclass(frozen=True, slots=True)
class _Part:
    """An episode as it is compared: with all its calls, or once for each role."""

    group: str
    role: str
    """Empty where roles are compared jointly."""
    place: int
    """Of its episode among all."""
    trajectory: Trajectory
    calls: tuple[Transition, ...]


def build_batch(
    groups: Groups, rules: Rules, objective: Objective, generator: torch.Generator, judge: Judge | None = None
) -> Batch:
    """Choose what is trained on, and give each call its advantage.

    Args:
        groups: the groups of this step, in order.
        rules: see `Rules`.
        objective: of the run.
        generator: shuffles rewards where the run's control asks for that; not used otherwise.
        judge: the critics' opinion of calls, where the run's credit asks for it.
    """
    skipped: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    rollouts: list[Rollout] = []
    selected: list[tuple[str, Rollout]] = []
    for group, trajectories in groups:
        choice = select(trajectories, rules)
        dropped += choice.dropped
        rollouts += choice.rollouts
        reason = choice.reason or _silence(choice.rollouts, rules, objective)
        if reason:
            skipped[group] = reason
        else:
            selected += [(group, rollout) for rollout in choice.rollouts]
    samples, lessons = _samples(selected, rules, objective, generator, judge) if selected else ([], [])
    telling = {sample.group for sample in samples if sample.advantage}
    skipped |= {group: "equal_rewards" for group, _ in selected if group not in telling}
    drop_cut = rules.algorithm.drop_cut_replies
    trained = [sample for sample in samples if sample.group in telling and not (drop_cut and sample.cut)]
    return Batch(
        groups=tuple(group for group, _ in groups),
        skipped=skipped,
        dropped=dict(dropped),
        rollouts=tuple(rollouts),
        episodes=tuple(dict.fromkeys(sample.episode for sample in trained)),
        samples=tuple(trained),
        lessons=tuple(lessons),
    )


def has_signal(trajectories: Sequence[Trajectory], rules: Rules, objective: Objective) -> bool:
    """Say whether a group would be trained on, by itself; for a run with dynamic sampling."""
    choice = select(trajectories, rules)
    return not (choice.reason or _silence(choice.rollouts, rules, objective))


def _silence(rollouts: Sequence[Rollout], rules: Rules, objective: Objective) -> str | None:
    """Say why a group by itself has no signal; None: it has one, or it is not asked for.

    With dynamic sampling such a group does not enter the comparison at all: it was sampled for nothing, and must not
    change what is made of its neighbours.
    """
    if not rules.algorithm.selection.dynamic:
        return None
    # Not the run's own random numbers: judging must not change what a control that shuffles rewards draws. Shuffled
    # inside one group, rewards are as equal as before.
    samples, _ = _samples([("", rollout) for rollout in rollouts], rules, objective, torch.Generator(), None)
    telling = [sample for sample in samples if sample.advantage]
    if not telling:
        return "equal_rewards"
    return "cut_replies" if rules.algorithm.drop_cut_replies and all(sample.cut for sample in telling) else None


def _samples(
    selected: Sequence[tuple[str, Rollout]],
    rules: Rules,
    objective: Objective,
    generator: torch.Generator,
    judge: Judge | None,
) -> tuple[list[Sample], list[Lesson]]:
    """Return every call of the selected rollouts with its advantage, and what critics learn from them."""
    rewards = _rewards([rollout.trajectory for _, rollout in selected], rules.algorithm, generator)
    samples: list[Sample] = []
    lessons: list[Lesson] = []
    for parts in _comparisons(selected, rules):
        episodes = _episodes(parts, rewards)
        own = [make_sample(part.group, call, 0.0) for part in parts for call in part.calls]
        if judge:
            seen = judge(own)
            episodes = replace(episodes, values_C=seen.values_C)
            lessons += make_lessons(own, seen, objective.returns(episodes))
        advantages = _advantages(episodes, objective).tolist()
        samples += [replace(sample, advantage=one) for sample, one in zip(own, advantages, strict=True)]
    return samples, lessons


def _advantages(episodes: Episodes, objective: Objective) -> Tensor:
    if episodes.values_C is None or bool(torch.isfinite(episodes.values_C).all()):
        return objective.advantages(episodes)
    # A loss made of these is not finite, and so the step is refused.
    return torch.full_like(episodes.values_C, torch.nan)


def _comparisons(selected: Sequence[tuple[str, Rollout]], rules: Rules) -> list[list[_Part]]:
    """Return the episodes as they are compared: all together, or those of each role that made calls by themselves."""
    if rules.algorithm.compare_roles == "jointly":
        return [
            [
                _Part(group, "", place, rollout.trajectory, rollout.calls)
                for place, (group, rollout) in enumerate(selected)
            ]
        ]
    found: list[list[_Part]] = []
    for role in rules.roles:
        parts = []
        for place, (group, rollout) in enumerate(selected):
            own = tuple(call for call in rollout.calls if call.role == role)
            parts += [_Part(group, role, place, rollout.trajectory, own)] if own else []
        found += [parts] if parts else []
    return found


def _rewards(trajectories: Sequence[Trajectory], algorithm: Algorithm, generator: torch.Generator) -> Tensor:
    """Return what is trained on of each episode: float64, shape [E], or [E, K] where rewards are kept apart."""
    if not algorithm.rewards:
        rewards = torch.tensor([one.reward for one in trajectories], dtype=torch.float64)
    else:
        named = [[one.rewards[name] for name in algorithm.rewards] for one in trajectories]
        rewards = torch.tensor(named, dtype=torch.float64)
        if algorithm.advantage != "gdpo":
            rewards = rewards @ torch.tensor(list(algorithm.rewards.values()), dtype=torch.float64)
    if algorithm.control is Control.SHUFFLED_REWARDS:
        return rewards[torch.randperm(len(trajectories), generator=generator)]
    return rewards


def _episodes(parts: Sequence[_Part], rewards: Tensor) -> Episodes:
    return Episodes(
        rewards_E=rewards[torch.tensor([part.place for part in parts])],
        calls_E=torch.tensor([len(part.calls) for part in parts]),
        groups_E=group_labels([part.group for part in parts], [part.role for part in parts]),
        signals_C=torch.tensor([one for part in parts for one in _signals(part)], dtype=torch.float64),
        states_C=torch.tensor([state_hash(call.prompt_token_ids) for part in parts for call in part.calls]),
    )


def _signals(part: _Part) -> list[float]:
    """Return the sum of the intermediate rewards of each call."""
    sums: dict[int, float] = defaultdict(float)
    for signal in part.trajectory.signals:
        sums[signal.call] += signal.value
    return [sums[call.number] for call in part.calls]
