"""What a start learns from: conversations and pairs as samples, for one role each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from leyden_learner.samples import Sample
from leyden_learner.start.errors import StartRefused


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation, or an episode: a sample for each turn that is learned."""

    role: str
    where: str
    """Which line or episode it is."""
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two conversations, or episodes of one task, of which one is the better."""

    role: str
    where: str
    chosen: tuple[Sample, ...]
    rejected: tuple[Sample, ...]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All of them, the chosen ones first."""
        return self.chosen + self.rejected


Unit = Example | Pair


@dataclass(slots=True)
class Units:
    """All that a start learns from."""

    units: list[Unit] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    """Why some of the data is left out -> how many."""

    def of(self, role: str) -> list[Unit]:
        """Return those of one role, in the order of the data."""
        return [unit for unit in self.units if unit.role == role]


def make_sample(role: str, prompt: Sequence[int], response: Sequence[int]) -> Sample:
    """Return the sample of a turn: what was shown, and what is learned."""
    tokens = torch.tensor([*prompt, *response], dtype=torch.int64)
    return Sample(tokens, torch.zeros(len(response)), temperature=1.0, advantage=0.0, role=role)


def fitting(found: Units, positions: int | None, max_length: int | None) -> Units:
    """Return what is no longer than allowed. Raises StartRefused where that cannot be, or nothing is left.

    Args:
        found: the data.
        positions: tokens that the model can look at; None: it does not say.
        max_length: the run's own bound: what is longer is left out.
    """
    if max_length and positions and max_length > positions:
        raise StartRefused(f"`start.max_length` is {max_length}, but the model has {positions} positions: set it lower")
    kept = Units(dropped=found.dropped.copy())
    for unit in found.units:
        longest = max(sample.tokens.numel() for sample in unit.samples)
        if max_length and longest > max_length:
            kept.dropped["too_long"] += 1
        elif positions and longest > positions:
            change = "shorten it, or set `start.max_length`, which leaves such ones out"
            raise StartRefused(f"{unit.where} has {longest} tokens, but the model has {positions} positions: {change}")
        else:
            kept.units.append(unit)
    if not kept.units:
        why = ", ".join(f"{reason}: {count}" for reason, count in sorted(kept.dropped.items())) or "there was none"
        raise StartRefused(f"no data is left to learn from ({why})")
    return kept
