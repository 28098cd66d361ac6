"""Credit, advantages and losses, against numbers worked out by hand."""

import math
from typing import get_args

import pytest
import torch

from leyden_algorithms import (
    ADVANTAGES,
    CREDITS,
    LOSSES,
    RatioStats,
    grpo_advantages,
    identical_credit,
    ppo_clip_loss,
)
from leyden_contracts import Algorithm


def test_identical_credit_gives_each_call_the_reward_of_its_episode():
    credit = identical_credit(torch.tensor([1.0, 0.0, 0.5]), torch.tensor([2, 1, 3]))

    assert credit.tolist() == [1.0, 1.0, 0.0, 0.5, 0.5, 0.5]


def test_grpo_advantages_are_rewards_in_standard_deviations_from_the_groups_mean():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)

    advantages = grpo_advantages(rewards, rewards)

    # Mean 1/2; squared deviations sum to 1, so the deviation is sqrt(1/3).
    assert advantages.tolist() == pytest.approx([0.8660239, -0.8660239, -0.8660239, 0.8660239], abs=2e-6)


def test_an_episode_of_many_calls_does_not_move_the_baseline():
    rewards = torch.tensor([1.0, 0.0])

    few = grpo_advantages(identical_credit(rewards, torch.tensor([1, 1])), rewards)
    many = grpo_advantages(identical_credit(rewards, torch.tensor([5, 1])), rewards)

    assert many.tolist() == [few[0].item()] * 5 + [few[1].item()]


def test_equal_rewards_have_no_advantage():
    rewards = torch.tensor([0.3, 0.3, 0.3])

    assert grpo_advantages(rewards, rewards).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 2.0, -2.2),
        (2.0, 2.0, -2.56),  # clipped at 1 + 0.28
        (0.5, 2.0, -1.0),  # the clip never hides that a good token has become rarer
        (0.5, -2.0, 1.6),  # clipped at 1 - 0.2
        (2.0, -2.0, 4.0),  # nor that a bad one has become likelier
    ],
)
def test_ppo_clip_loss_of_one_token(ratio: float, advantage: float, expected: float):
    loss = ppo_clip_loss(torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), 0.2, 0.28)

    assert loss.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("ratio", "advantage"), [(2.0, 1.0), (0.5, -1.0)])
def test_a_clipped_token_has_no_gradient(ratio: float, advantage: float):
    logprobs = torch.tensor([math.log(ratio)], requires_grad=True)

    ppo_clip_loss(logprobs, torch.zeros(1), torch.tensor([advantage]), 0.2, 0.28).sum().backward()

    assert logprobs.grad is not None
    assert logprobs.grad.item() == 0


def test_a_wild_ratio_stays_finite():
    logprobs = torch.tensor([0.0], requires_grad=True)

    loss = ppo_clip_loss(logprobs, torch.tensor([-500.0]), torch.tensor([-1.0]), 0.2, 0.28).sum()
    loss.backward()

    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()


def test_ratio_stats_are_means_over_all_tokens_of_all_parts():
    stats = RatioStats(0.2, 0.28)
    stats.add(torch.log(torch.tensor([2.0, 1.0])), torch.zeros(2), torch.tensor([1.0, 1.0]))
    stats.add(torch.log(torch.tensor([0.5, 1.0])), torch.zeros(2), torch.tensor([1.0, -1.0]))

    metrics = stats.metrics()

    assert metrics["ratio_mean"] == pytest.approx(4.5 / 4)
    assert metrics["ratio_max"] == pytest.approx(2)
    assert metrics["kl"] == pytest.approx((2 - 1 - math.log(2) + 0.5 - 1 - math.log(0.5)) / 4)
    assert metrics["clip_fraction"] == pytest.approx(1 / 4)


def test_ratio_stats_of_nothing_are_empty():
    assert RatioStats(0.2, 0.28).metrics() == {}


@pytest.mark.parametrize(("field", "table"), [("credit", CREDITS), ("advantage", ADVANTAGES), ("loss", LOSSES)])
def test_every_name_that_a_run_may_give_has_a_function(field: str, table: dict):
    assert set(get_args(Algorithm.model_fields[field].annotation)) == set(table)
