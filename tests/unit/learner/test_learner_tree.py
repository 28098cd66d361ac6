"""A forest holds every sequence, each common beginning once, and each token sees its own path."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leyden_learner.forward.tree import Forest, plant
from support.forest import sequences, visible


def distinct_beginnings(given: list[Tensor]) -> int:
    return len({tuple(one[: n + 1].tolist()) for one in given for n in range(one.numel())})


def seen_by_pieces(forest: Forest) -> Tensor:
    """Return how often the strips and branches show each token to each: shape [T, T]."""
    seen = torch.zeros(forest.tokens.numel(), forest.tokens.numel(), dtype=torch.long)
    for start, end in forest.strips:
        seen[start:end, start:end] += torch.ones(end - start, end - start, dtype=torch.long).tril()
    for q0, q1, k0, k1 in forest.branches:
        seen[q0:q1, k0:k1] += 1
    return seen


@given(sequences(), st.sampled_from([1, 2, 5, 1000]))
def test_a_path_holds_its_sequence_and_sees_nothing_else(given: list[Tensor], least: int):
    forest = plant(given, least)

    for one, path in zip(given, forest.paths, strict=True):
        assert torch.equal(forest.tokens[path], one)
        assert torch.equal(forest.depths[path], torch.arange(one.numel()))
        seen = visible(forest)[path[-1]].nonzero()[:, 0]
        assert torch.equal(seen, path)


@given(sequences(), st.sampled_from([1, 2, 5, 1000]))
def test_strips_and_branches_show_each_visible_token_once(given: list[Tensor], least: int):
    forest = plant(given, least)

    assert torch.equal(seen_by_pieces(forest), visible(forest).long())
    assert [start for start, _ in forest.strips[1:]] == [end for _, end in forest.strips[:-1]]
    assert all(start < end for start, end in forest.strips)


@given(sequences())
def test_every_common_beginning_stands_there_once(given: list[Tensor]):
    assert plant(given, least=1).tokens.numel() == distinct_beginnings(given)


@given(sequences(), st.integers(2, 6))
def test_branches_along_a_path_are_far_enough_apart(given: list[Tensor], least: int):
    forest = plant(given, least)

    for path in forest.paths:
        known = set(path.tolist())
        depths = {int(forest.depths[branch.k1 - 1]) + 1 for branch in forest.branches if branch.k1 - 1 in known}
        assert all(deeper - depth >= least for depth, deeper in pairwise(sorted(depths | {0})))


def test_a_group_is_a_prompt_and_its_responses():
    prompt, answers = list(range(20)), ([30, 31], [40, 41, 42], [50])

    forest = plant([torch.tensor(prompt + answer) for answer in answers])

    assert forest.tokens.numel() == 20 + 6
    assert len(forest.strips) == 3
    assert len(forest.branches) == 1


def test_turns_that_extend_each_other_are_one_strip():
    talk = torch.arange(50)

    forest = plant([talk[:10], talk[:50], talk[:30], talk[:30]])

    assert forest.strips == ((0, 50),)
    assert forest.branches == ()
    assert [path.numel() for path in forest.paths] == [10, 50, 30, 30]


def test_what_is_not_worth_a_branch_is_computed_twice():
    pair = [torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])]

    assert plant(pair, least=4).tokens.numel() == 8
    assert plant(pair, least=3).tokens.numel() == 5


def test_nearby_branches_are_one():
    stem = list(range(100, 130))
    tails = ([1, 2, 3, 9], [1, 2, 4, 9], [1, 5, 5, 9], [6])

    forest = plant([torch.tensor(stem + tail) for tail in tails])

    assert len(forest.branches) == 1
