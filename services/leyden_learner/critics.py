"""The learned critics of a run, one for each trained role: what a call is worth, judged by the end of its prompt.

Before a step they judge its calls, then the policy is trained, then they learn what the calls turned out to be worth;
so no call is judged by a head that has seen its outcome. They read the base model's hidden states, without the adapter:
those mean the same at every version, so that what is remembered of earlier steps stays true.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from leyden_algorithms import ValueHead, fit_values, value_loss
from leyden_contracts import Algorithm, Critic
from leyden_learner.policy import Policy
from leyden_learner.samples import Sample

CRITIC = "critic.safetensors"
"""The checkpoint's file of a role's critic."""


class Seen(NamedTuple):
    """What critics see in C calls, and think of them."""

    states_CH: Tensor
    """float32."""
    values_C: Tensor
    """What each call is expected to earn from there, float64."""


Judge = Callable[[Sequence[Sample]], Seen]
"""The critics' opinion of calls, of whatever roles."""


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What one role's critic learns from a step."""

    role: str
    states_CH: Tensor
    values_C: Tensor
    """By the critic before the step."""
    returns_C: Tensor
    """What the calls turned out to be worth."""


class Critics:
    """A head and a memory for each role.

    Started in several processes, each judges all calls itself: it is a pass over prompts alone, without gradients.
    """

    def __init__(self, algorithm: Algorithm, policy: Policy, roles: Sequence[str]) -> None:
        settings = algorithm.critic or Critic()
        self._policy, self._limit = policy, algorithm.micro_batch_tokens
        self._critics = {role: _RoleCritic(policy.width, settings) for role in roles}

    def judge(self, samples: Sequence[Sample]) -> Seen:
        """Judge calls by the critics of their roles."""
        cut = [_beginning(sample) for sample in samples]
        states_CH = torch.zeros(len(cut), self._policy.width)
        for part in self._policy.micro_batches(cut, self._limit):
            states_CH[list(part.samples)] = self._policy.base_states([cut[i] for i in part.samples]).cpu()
        values_C = torch.zeros(len(cut), dtype=torch.float64)
        for role, own in _by_role(samples):
            values_C[own] = self._critics[role].values(states_CH[own])
        return Seen(states_CH, values_C)

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Fit each role's head to its newest calls, these among them."""
        for lesson in lessons:
            self._critics[lesson.role].learn(lesson.states_CH, lesson.returns_C)

    def files(self, role: str) -> dict[str, bytes]:
        """Return a role's critic as a checkpoint's files."""
        return {CRITIC: save(self._critics[role].state())}

    def restore(self, role: str, files: dict[str, bytes]) -> None:
        """Go back to what `files` returned. Raises ValueError where it does not fit."""
        self._critics[role].restore(load(files[CRITIC]))


class _RoleCritic:
    """One head, and the N newest calls that it is fitted to."""

    def __init__(self, width: int, settings: Critic) -> None:
        self._window, self._ridge = settings.window, settings.ridge
        self._head = ValueHead(width).requires_grad_(False)
        self._states_NH = torch.zeros(0, width)
        self._returns_N = torch.zeros(0)

    def values(self, states_CH: Tensor) -> Tensor:
        return self._head(states_CH).double()

    def learn(self, states_CH: Tensor, returns_C: Tensor) -> None:
        self._states_NH = torch.cat([self._states_NH, states_CH])[-self._window :]
        self._returns_N = torch.cat([self._returns_N, returns_C.float()])[-self._window :]
        weights_H, constant = fit_values(self._states_NH, self._returns_N, self._ridge)
        self._head.out.weight.copy_(weights_H)
        self._head.out.bias.copy_(constant)

    def state(self) -> dict[str, Tensor]:
        whole = self._head.state_dict() | {"states": self._states_NH, "returns": self._returns_N}
        return {name: one.contiguous() for name, one in whole.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        now = self.state()
        if state.keys() != now.keys() or any(state[name].shape[1:] != one.shape[1:] for name, one in now.items()):
            raise ValueError(f"{CRITIC} does not fit the base model")
        self._states_NH, self._returns_N = state["states"], state["returns"]
        self._head.load_state_dict({name: state[name] for name in self._head.state_dict()})


def make_lessons(samples: Sequence[Sample], seen: Seen, returns_C: Tensor) -> list[Lesson]:
    """Return what is to be learned from these calls, by role."""
    return [Lesson(role, seen.states_CH[own], seen.values_C[own], returns_C[own]) for role, own in _by_role(samples)]


def lesson_metrics(lessons: Sequence[Lesson], role: str) -> dict[str, float]:
    """Return how good a role's critic was before the step; empty where there is none.

    `value_loss` is half the mean squared error; `explained_variance` is 1 minus the share of the returns' variance that
    the critic did not foresee: 1 is perfect, 0 no better than a constant. It is missing where all returns are equal.
    """
    own = [lesson for lesson in lessons if lesson.role == role]
    if not own:
        return {}
    values_C, returns_C = (torch.cat(one) for one in zip(*((x.values_C, x.returns_C) for x in own), strict=True))
    found = {"value_loss": value_loss(values_C, returns_C).mean().item()}
    spread = returns_C.var(correction=0).item()
    unseen = (returns_C - values_C).var(correction=0).item()
    return found | ({"explained_variance": 1 - unseen / spread} if spread > 1e-12 else {})


def _beginning(sample: Sample) -> Sample:
    """Cut the call after the first token of its response: what is fed is then its prompt."""
    end = sample.prompt_length + 1
    return replace(sample, tokens=sample.tokens[:end], sampled_logprobs=sample.sampled_logprobs[:1])


def _by_role(samples: Sequence[Sample]) -> Iterator[tuple[str, list[int]]]:
    """Yield each role, in order of the alphabet, with the places of its calls."""
    for role in sorted({sample.role for sample in samples}):
        yield role, [i for i, sample in enumerate(samples) if sample.role == role]
