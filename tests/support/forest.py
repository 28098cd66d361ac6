"""Samples that begin alike, and attention computed the slow way, for the tests of the forward pass."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from leyden_learner.batch import Batch
from leyden_learner.forward.tree import Forest
from leyden_learner.samples import Sample

_few = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@st.composite
def sequences(draw: st.DrawFn, longest: int = 30) -> list[Tensor]:
    """Draw sequences of which many continue another, or leave it somewhere: groups, turns, and doubles."""
    found: list[list[int]] = [draw(_few)]
    for _ in range(draw(st.integers(0, 9))):
        stem = draw(st.sampled_from([*found, []]))
        kept = draw(st.integers(0, len(stem)))
        # A run of equal tokens makes long common beginnings likely, and short ones with them.
        more = draw(st.one_of(_few, st.just([]), st.integers(1, 12).map(lambda n: [1] * n)))
        if one := (stem[:kept] + more)[:longest]:
            found.append(one)
    return [torch.tensor(one) for one in draw(st.permutations(found))]


def visible(forest: Forest) -> Tensor:
    """Return which token sees which: bool, shape [T, T]."""
    place = torch.arange(forest.ends.numel())
    return (place[:, None] >= place) & (place[:, None] < forest.ends)


def make_samples(prompts: int, group: int, *, turns: int = 1, vocabulary: int = 64, seed: int = 0) -> list[Sample]:
    """Return groups that share prompts; each later turn extends the one before; all kinds of temperature."""
    generator = torch.Generator().manual_seed(seed)

    def some(low: int, high: int) -> Tensor:
        count = int(torch.randint(low, high + 1, (1,), generator=generator))
        return torch.randint(vocabulary, (count,), generator=generator)

    samples: list[Sample] = []
    for _ in range(prompts):
        prompt = some(20, 40)
        for _ in range(group):
            tokens = prompt
            for _ in range(turns):
                answer = some(1, 24)
                tokens = torch.cat([tokens, answer])
                sampled = -4 - torch.rand(answer.numel(), generator=generator)
                heat = float(torch.rand((), generator=generator)) + 0.5
                samples.append(Sample(tokens, sampled, heat, float(torch.randn((), generator=generator))))
                tokens = torch.cat([tokens, some(3, 9)])
    return samples


def make_batch(samples: Sequence[Sample], role: str = "policy") -> Batch:
    """Return a batch of these samples, all of them one role's."""
    return Batch(
        groups=("a",),
        skipped={},
        dropped={},
        rollouts=(),
        episodes=(),
        samples=tuple(replace(sample, role=role) for sample in samples),
    )
