"""Probes: prompts from the calls that a version was trained on, and what three policies think of them."""

from pathlib import Path

import pytest
import torch

from leyden_learner.probes import COUNT, LENGTH, PLACES, begin_probes, choose_probes, finish_probes, spread
from leyden_learner.trainer import Trainer
from support.learning import VOCABULARY, make_group, make_spec


def rollouts(trainer: Trainer, prompt: tuple = (1, 2, 3)):
    return trainer.build_batch([make_group("a", (1, 0, 0, 0), prompt=prompt)]).rollouts


def test_probes_are_real_calls_and_always_the_same(tiny_llama: Path):
    trainer = Trainer(make_spec(), tiny_llama, "cpu")

    chosen = choose_probes(rollouts(trainer), "policy", VOCABULARY, seed=0)

    assert chosen == [[1, 2, 3, 4, 9], [1, 2, 3, 5, 9], [1, 2, 3, 6, 9]]
    assert chosen == choose_probes(rollouts(trainer), "policy", VOCABULARY, seed=0)


def test_probes_are_short_different_and_never_missing(tiny_llama: Path):
    trainer = Trainer(make_spec(), tiny_llama, "cpu")
    twins = make_group("a", (1, 0, 0, 0), response=(7, 8), prompt=tuple(range(1, 60)) * 4)
    same = trainer.build_batch([twins]).rollouts

    chosen, without = choose_probes(same, "policy", VOCABULARY, 0), choose_probes([], "policy", VOCABULARY, 0)

    assert len(chosen) == len(without) == COUNT
    assert len({tuple(tokens) for tokens in chosen}) == COUNT
    assert len(chosen[0]) == LENGTH
    assert chosen[0][-2:] == [7, 8]
    assert all(2 <= len(tokens) <= LENGTH and max(tokens) < VOCABULARY for tokens in chosen + without)


def test_each_version_says_what_it_its_parent_and_the_base_think(tiny_llama: Path):
    trainer = Trainer(make_spec(), tiny_llama, "cpu")
    versions = []
    for _ in range(2):
        batch = trainer.build_batch([make_group("a", (1, 0, 0, 0), version=trainer.version)])
        probes = begin_probes(trainer.policy, choose_probes(batch.rollouts, "policy", VOCABULARY, 0))
        trainer.step(batch)
        versions.append(finish_probes(trainer.policy, probes))

    one, two = versions[0][0], versions[1][0]

    assert one.token_ids == two.token_ids
    assert one.places == list(range(1, len(one.token_ids) + 1))
    assert one.parent_logprobs == one.base_logprobs
    own, base = (trainer.policy.next_logprobs(two.token_ids, two.places, adapter=a) for a in (True, False))
    for row, token in enumerate(two.next_ids):
        assert token in own[row].topk(5).indices
        assert two.logprobs[row] == pytest.approx(own[row, token].item(), abs=1e-5)
        assert two.base_logprobs[row] == pytest.approx(base[row, token].item())
    assert len({tuple(two.logprobs), tuple(two.parent_logprobs), tuple(two.base_logprobs)}) == 3


def test_sequences_of_different_lengths_are_asked_together_as_alone(tiny_llama: Path):
    policy = Trainer(make_spec(), tiny_llama, "cpu").policy
    sequences, places = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 1]], [[1, 6], [1], [2, 3]]

    together = policy.next_logprobs_each(sequences, places)

    for tokens, own, found in zip(sequences, places, together, strict=True):
        assert torch.allclose(found, policy.next_logprobs(tokens, own), atol=1e-5)


def test_places_are_spread_to_the_end():
    assert spread(1) == [1]
    assert spread(5) == [1, 2, 3, 4, 5]
    assert (spread(LENGTH)[0], spread(LENGTH)[-1], len(spread(LENGTH))) == (1, LENGTH, PLACES)
