"""Supervised and preference objectives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_algorithms import PAIRINGS, Pairs, dpo_loss, dpo_metrics, sequence_logprobs, sft_loss
from support import plain_algorithms as plain


def make_pairs(seed: int = 0, count: int = 4) -> Pairs:
    torch.manual_seed(seed)
    return Pairs(*(-10 * torch.rand(count, dtype=torch.float64) for _ in range(4)))


def test_sft_learns_from_unmasked_tokens_only():
    logprobs = torch.tensor([-1.0, -2.0, -math.inf, -4.0], requires_grad=True)

    loss = sft_loss(logprobs, torch.tensor([1, 0, 0, 1]))
    loss.sum().backward()

    assert loss.tolist() == [1, 0, 0, 4]
    assert logprobs.grad.tolist() == [-1, 0, 0, -1]


def test_sft_loss_is_cross_entropy():
    torch.manual_seed(0)
    logits, targets = torch.randn(6, 9), torch.randint(9, (6,))
    chosen = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]

    found = sft_loss(chosen, torch.ones(6, dtype=torch.bool)).mean()

    assert found.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, targets).item())


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_dpo_is_what_its_paper_says(beta: float):
    pairs = make_pairs()
    columns = zip(*(getattr(pairs, name).tolist() for name in Pairs.__slots__), strict=True)

    assert dpo_loss(pairs, beta=beta).tolist() == pytest.approx([plain.dpo(*one, beta) for one in columns])


def test_dpo_by_hand():
    # The policy likes the chosen answer 3 more than the base does, and the rejected 1 less.
    pairs = Pairs(*(torch.tensor([value]) for value in (-1.0, -5.0, -4.0, -4.0)))

    assert dpo_loss(pairs, beta=0.5).item() == pytest.approx(math.log(1 + math.exp(-2)))
    assert dpo_metrics(pairs, beta=0.5) == {"accuracy": 1.0, "margin": pytest.approx(2.0)}


def test_smoothing_counts_some_pairs_the_other_way_round():
    pairs = make_pairs()
    turned = Pairs(pairs.rejected_P, pairs.chosen_P, pairs.base_rejected_P, pairs.base_chosen_P)

    found = dpo_loss(pairs, smoothing=0.2)

    assert found.tolist() == pytest.approx((0.8 * dpo_loss(pairs) + 0.2 * dpo_loss(turned)).tolist())


def test_a_policy_that_is_the_base_has_the_loss_of_a_coin():
    chosen, rejected = make_pairs().chosen_P, make_pairs().rejected_P

    assert dpo_loss(Pairs(chosen, rejected, chosen, rejected)).tolist() == pytest.approx([math.log(2)] * 4)


def test_gradients_of_dpo_and_none_for_the_base():
    pairs = make_pairs()
    parts = [getattr(pairs, name).requires_grad_() for name in Pairs.__slots__]

    assert torch.autograd.gradcheck(lambda a, b: dpo_loss(Pairs(a, b, *parts[2:])), parts[:2])
    dpo_loss(pairs).sum().backward()
    assert parts[2].grad is parts[3].grad is None


def test_dpo_stays_finite():
    far = Pairs(*(torch.tensor([value], requires_grad=True) for value in (-1e6, 0.0, 0.0, -1e6)))

    loss = dpo_loss(far)
    loss.sum().backward()

    assert torch.isfinite(loss).all()
    assert torch.isfinite(far.chosen_P.grad).all()


def test_sequence_logprobs_sum_the_tokens_of_each_sample():
    assert sequence_logprobs(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2, 1])).tolist() == [3, 4]


def test_pairs_of_a_group():
    rewards = torch.tensor([0.5, 1.0, 0.0, 1.0])

    assert PAIRINGS["extremes"](rewards).tolist() == [[1, 2]]
    assert PAIRINGS["every"](rewards).tolist() == [[0, 2], [1, 0], [1, 2], [3, 0], [3, 2]]
    assert PAIRINGS["every"](rewards, margin=0.5).tolist() == [[1, 2], [3, 2]]
    assert PAIRINGS["extremes"](rewards, margin=1.0).tolist() == []


@pytest.mark.parametrize("name", PAIRINGS)
def test_a_group_without_difference_has_no_pairs(name: str):
    assert PAIRINGS[name](torch.tensor([0.3, 0.3, 0.3])).shape == (0, 2)
    assert PAIRINGS[name](torch.tensor([1.0])).shape == (0, 2)


@pytest.mark.parametrize("name", PAIRINGS)
def test_a_reward_that_is_no_number_is_refused(name: str):
    with pytest.raises(ValueError, match="NaN or infinite"):
        PAIRINGS[name](torch.tensor([1.0, math.nan]))


@pytest.mark.parametrize("name", PAIRINGS)
@settings(max_examples=25)
@given(
    rewards=st.lists(st.integers(-3, 3), min_size=1, max_size=6, unique=True), order=st.randoms(use_true_random=False)
)
def test_the_order_of_a_group_does_not_matter(name: str, rewards: list[int], order):
    shuffled = order.sample(rewards, len(rewards))

    def chosen(of: list[int]) -> set[tuple[int, int]]:
        return {(of[a], of[b]) for a, b in PAIRINGS[name](torch.tensor(of, dtype=torch.float64)).tolist()}

    assert chosen(rewards) == chosen(shuffled)
    assert all(better > worse for better, worse in chosen(rewards))
