"""From another run's trajectories to what is learned from: with the tokens that its engine made.

Only training episodes are read: learning from a run's evaluations would spoil them as a measure.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from pydantic import ValidationError

from leyden_algorithms import PAIRINGS
from leyden_contracts import DpoStart, RunSpec, SftStart, TextCall, Trajectory, Transition, Verdict
from leyden_contracts.start_line import SftLine
from leyden_learner.samples import Sample
from leyden_learner.start.chat import Chat
from leyden_learner.start.errors import StartRefused
from leyden_learner.start.lines import samples_of
from leyden_learner.start.units import Example, Pair, Units, make_sample


class Reading:
    """What decides how trajectories are read."""

    def __init__(self, spec: RunSpec, chat: Chat | None, vocabulary: int) -> None:
        """`chat` is for text-only trajectories; None: they are left out."""
        start = spec.start
        only = start.role if isinstance(start, SftStart | DpoStart) else None
        self.roles: Sequence[str] = (only,) if only else spec.trained_roles
        self._spec, self._chat, self._vocabulary = spec, chat, vocabulary

    def samples(self, trajectory: Trajectory, role: str) -> tuple[Sample, ...] | str:
        """Return what a role said in an episode, or why it cannot be learned from. Raises StartRefused."""
        if trajectory.verdict is Verdict.TEXT_ONLY and self._chat:
            return self._of_texts(trajectory, role, self._chat)
        if trajectory.verdict is not Verdict.COMPLETE:
            return str(trajectory.verdict)
        calls = [call for call in trajectory.transitions if call.role == role]
        found = tuple(_sample(call, role) for call in calls)
        if not all(_sound(sample, self._vocabulary) for sample in found):
            return "untrainable"
        return found or "no_trained_calls"

    def _of_texts(self, trajectory: Trajectory, role: str, chat: Chat) -> tuple[Sample, ...] | str:
        own = [text for text in trajectory.texts if self._role_of(text) == role]
        try:
            return tuple(sample for text in own for sample in _of_text(text, role, chat)) or "no_trained_calls"
        except (ValidationError, ValueError):
            return "unreadable_text"
        except StartRefused as error:
            raise StartRefused(f"episode {trajectory.episode}: {error}") from error

    def _role_of(self, text: TextCall) -> str | None:
        named = next((name for name, role in self._spec.roles.items() if text.agent in role.agents), None)
        alone = self._spec.trained_roles[0] if len(self._spec.trained_roles) == 1 else None
        return named or alone


def examples(trajectories: Iterable[Trajectory], reading: Reading, min_reward: float | None) -> Units:
    """Return what the episodes teach that earned at least `min_reward`. Raises StartRefused."""
    found = Units()
    for one in _of_training(trajectories):
        if min_reward is not None and one.reward < min_reward:
            found.dropped["low_reward"] += 1
            continue
        for role in reading.roles:
            samples = reading.samples(one, role)
            if isinstance(samples, str):
                found.dropped[samples] += 1
            else:
                found.units.append(Example(role, f"episode {one.episode}", samples))
    return found


def pairs(trajectories: Iterable[Trajectory], reading: Reading, start: DpoStart) -> Units:
    """Return the pairs of each group, by their rewards. Raises StartRefused."""
    groups: dict[str, list[Trajectory]] = {}
    for one in _of_training(trajectories):
        groups.setdefault(one.group, []).append(one)
    found = Units()
    for role in reading.roles:
        for group in groups.values():
            _add_pairs(found, group, role, reading, start)
    return found


def _add_pairs(found: Units, group: Sequence[Trajectory], role: str, reading: Reading, start: DpoStart) -> None:
    read = [(one, reading.samples(one, role)) for one in group]
    found.dropped.update(samples for _, samples in read if isinstance(samples, str))
    sound = [(one, samples) for one, samples in read if not isinstance(samples, str)]
    if not sound:
        return
    rewards_E = torch.tensor([one.reward for one, _ in sound], dtype=torch.float64)
    chosen_P2 = PAIRINGS[start.pairing or "extremes"](rewards_E, margin=start.margin or 0.0)
    if not chosen_P2.numel():
        found.dropped["groups_without_a_pair"] += 1
    for better, worse in chosen_P2.tolist():
        (one, chosen), (other, rejected) = sound[better], sound[worse]
        if _same(chosen, rejected):
            found.dropped["equal_answers"] += 1
        else:
            found.units.append(Pair(role, f"episodes {one.episode} and {other.episode}", chosen, rejected))


def _of_training(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    return (one for one in trajectories if one.purpose == "train")


def _sample(call: Transition, role: str) -> Sample:
    prompt, response = (
        np.frombuffer(ids, dtype="<i4").tolist() for ids in (call.prompt_token_ids, call.response_token_ids)
    )
    return make_sample(role, prompt, response)


def _sound(sample: Sample, vocabulary: int) -> bool:
    return 0 < sample.prompt_length < sample.tokens.numel() and int(sample.tokens.max()) < vocabulary


def _same(one: Sequence[Sample], other: Sequence[Sample]) -> bool:
    same = (torch.equal(a.tokens, b.tokens) for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and all(same)


def _of_text(text: TextCall, role: str, chat: Chat) -> tuple[Sample, ...]:
    line = SftLine.model_validate({"prompt": json.loads(text.messages), "completion": json.loads(text.reply)})
    return samples_of(line.prompt, line.completion, None, role, chat)
