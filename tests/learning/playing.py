"""Agents as programs: each asks a model, waits for the reply, and ends with an outcome."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from leyden_engine.job import Job
from leyden_engine.text import Text


@dataclass(frozen=True, slots=True)
class Ask:
    """One call: whose it is, and what the model is shown."""

    role: str
    prompt: list[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended."""

    reward: float
    """What is trained on."""
    score: float
    """What is reported: the reward without the luck in it."""
    signals: tuple[float, ...] = ()
    """Intermediate reward of each call, by call; empty: there are none."""


Program = Generator[Ask, Job, Outcome]
"""One episode under way: yields asks, is sent the engine's finished jobs, returns the outcome."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An agent with its model and its tasks, for one seed."""

    model: Path
    train: Sequence[Any]
    held_out: Sequence[Any]
    """Tasks that are never trained on."""
    program: Callable[[Any, Random], Program]
    """(task, the world's random numbers) -> an episode."""
    max_tokens: int = 1
    """Of one reply."""
    text: Text | None = None
    """The model's tokenizer, where it has one."""


class Sampling(Protocol):
    """What answers asks."""

    def sample(self, asks: Sequence[Ask], seeds: Sequence[int]) -> list[Job]:
        """Return the finished job of each ask; the seeds decide the tokens."""
        ...


@dataclass(slots=True)
class Played:
    """One episode, call by call."""

    calls: list[tuple[Ask, Job]] = field(default_factory=list)
    outcome: Outcome = Outcome(0.0, 0.0)


def play(programs: Sequence[Program], sampler: Sampling, rng: Random) -> list[Played]:
    """Run the programs side by side to their ends; what they ask at the same time is one batch."""
    played = [Played() for _ in programs]
    waiting = {i: next(program) for i, program in enumerate(programs)}
    while waiting:
        jobs = sampler.sample(list(waiting.values()), [rng.getrandbits(48) for _ in waiting])
        for (i, ask), job in zip(list(waiting.items()), jobs, strict=True):
            played[i].calls.append((ask, job))
            try:
                waiting[i] = programs[i].send(job)
            except StopIteration as end:
                played[i].outcome = end.value
                del waiting[i]
    return played
