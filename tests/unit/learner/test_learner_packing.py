"""Passes: every sample once, within the limit, trees together while they fit."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leyden_learner.forward.packing import MicroBatch, pack, share
from leyden_learner.forward.tree import plant
from support.forest import sequences


def group(first: int, prompt: int, answers: int) -> list[Tensor]:
    stem = torch.arange(first, first + prompt)
    return [torch.cat([stem, torch.full((5,), first + 1000 + i)]) for i in range(answers)]


@given(sequences(), st.integers(1, 60))
def test_every_sequence_is_in_one_pass_within_the_limit(given: list[Tensor], limit: int):
    parts = pack(given, limit)

    assert sorted(i for part in parts for i in part.samples) == list(range(len(given)))
    for part in parts:
        fed = plant([given[i] for i in part.samples]).tokens.numel()
        alone = max(given[i].numel() for i in part.samples)
        assert fed <= part.tokens <= max(limit, alone)


def test_groups_share_a_pass_while_they_fit():
    batch = [*group(0, 100, 4), *group(200, 100, 4), *group(400, 100, 4)]

    parts = pack(batch, 250)

    assert [part.tokens for part in parts] == [240, 120]
    assert [len(part.samples) for part in parts] == [8, 4]


def test_a_group_is_not_cut_to_fill_a_pass():
    batch = [*group(0, 100, 4), *group(200, 100, 4)]

    assert [part.samples for part in pack(batch, 200)] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_tree_that_does_not_fit_is_cut_where_little_is_shared():
    system = torch.arange(5000, 5050)
    batch = [torch.cat([system, one]) for first in (0, 200) for one in group(first, 100, 4)]

    parts = pack(batch, 200)

    assert [part.samples for part in parts] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [part.tokens for part in parts] == [170, 170]


def test_processes_get_about_as_many_tokens():
    parts = [MicroBatch((i,), tokens) for i, tokens in enumerate([5, 9, 3, 7, 6])]

    shares = share(parts, 2)

    assert sorted(part.samples[0] for one in shares for part in one) == [0, 1, 2, 3, 4]
    assert [sum(part.tokens for part in one) for one in shares] == [14, 16]
    assert share(parts[:1], 3)[1:] == [[], []]
