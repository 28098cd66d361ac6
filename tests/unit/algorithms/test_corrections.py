"""Off-policy correction: weights, what was dropped, and why."""

import math
from dataclasses import replace

import pytest
import torch

from leyden_algorithms import CORRECTIONS, Tokens
from support import plain_algorithms as plain
from support.policies import LENGTHS, make_tokens, rows

CASES = {
    "tis": ("tis", {"ceiling": 1.2}, 0.0, 1.2),
    "tis_sequence": ("tis", {"ceiling": 1.2, "sequence": True}, 0.0, 1.2),
    "mis": ("mis", {"ceiling": 1.2}, 0.0, 1.2),
    "mis_sequence": ("mis", {"ceiling": 1.2, "sequence": True}, 0.0, 1.2),
    "icepop": ("icepop", {"low": 0.8, "high": 1.3}, 0.8, 1.3),
    "geometric": ("geometric", {"low": 0.9, "high": 1.1}, 0.9, 1.1),
}


def of_ratios(*samples: tuple[float, ...]) -> Tokens:
    """Make tokens whose old / sampled is given."""
    ratios = torch.tensor([ratio for sample in samples for ratio in sample], dtype=torch.float64)
    nothing = torch.zeros_like(ratios)
    return Tokens(
        current_T=nothing,
        old_T=ratios.log(),
        sampled_T=nothing,
        advantages_T=nothing,
        lengths_S=torch.tensor([len(sample) for sample in samples]),
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_what_their_papers_say(case: str, seed: int):
    name, options, low, high = CASES[case]
    tokens = make_tokens(seed)

    expected = plain.correction(case, rows(tokens.old_T), rows(tokens.sampled_T), low, high)

    found = rows(CORRECTIONS[name](tokens, **options).weights_T)
    assert found == [pytest.approx(row, abs=1e-12) for row in expected]


def test_tis_truncates_and_counts():
    found = CORRECTIONS["tis"](of_ratios((0.1, 2.0), (4.0,)), ceiling=2.0)

    assert found.weights_T.tolist() == pytest.approx([0.1, 2.0, 2.0])
    assert found.counts == {"truncated": 1, "not_finite": 0}


def test_mis_drops_what_tis_truncates():
    found = CORRECTIONS["mis"](of_ratios((0.1, 1.99), (4.0,)), ceiling=2.0)

    assert found.weights_T.tolist() == pytest.approx([0.1, 1.99, 0.0])
    assert found.counts == {"above": 1, "not_finite": 0}


def test_icepop_drops_on_both_sides_and_keeps_the_ratio_between():
    found = CORRECTIONS["icepop"](of_ratios((0.49, 0.51), (4.9, 5.1, 1.0, 7.0)))

    assert found.weights_T.tolist() == pytest.approx([0, 0.51, 4.9, 0, 1, 0])
    assert found.counts == {"above": 2, "below": 1, "not_finite": 0}


def test_whole_samples_are_judged_by_the_product():
    tokens = of_ratios((1.5, 1.5), (1.5, 0.5), (1.5,))

    assert CORRECTIONS["mis"](tokens, ceiling=2.0, sequence=True).weights_T.tolist() == pytest.approx(
        [0, 0, 0.75, 0.75, 1.5]
    )
    assert CORRECTIONS["tis"](tokens, ceiling=2.0, sequence=True).weights_T.tolist() == pytest.approx(
        [2, 2, 0.75, 0.75, 1.5]
    )
    assert CORRECTIONS["mis"](tokens, ceiling=2.0, sequence=True).counts["above"] == 2


def test_the_geometric_mask_does_not_grow_with_length():
    tokens = of_ratios((1.009,) * 100, (1.02, 1.01), (0.98,), (2.0, 0.5))

    found = CORRECTIONS["geometric"](tokens)

    assert found.weights_T.tolist() == [1] * 100 + [0, 0, 0, 1, 1]
    assert found.counts == {"above": 2, "below": 1, "not_finite": 0}


def test_two_corrections_multiply():
    tokens = of_ratios((1.5, 1.5), (4.0, 0.25))

    found = CORRECTIONS["geometric"](tokens) * CORRECTIONS["tis"](tokens, ceiling=2.0)

    assert found.weights_T.tolist() == pytest.approx([0, 0, 2, 0.25])
    assert found.counts == {"above": 2, "below": 0, "not_finite": 0, "truncated": 1}


@pytest.mark.parametrize("name", CORRECTIONS)
def test_where_the_learner_sampled_itself_nothing_is_corrected(name: str):
    tokens = make_tokens()

    found = CORRECTIONS[name](replace(tokens, sampled_T=tokens.old_T))

    assert found.weights_T.tolist() == [1] * sum(LENGTHS)
    assert sum(found.counts.values()) == 0


@pytest.mark.parametrize("name", CORRECTIONS)
def test_a_correction_does_not_look_at_the_policy_in_training(name: str):
    tokens = make_tokens()

    moved = replace(tokens, current_T=tokens.current_T + 1)

    assert torch.equal(CORRECTIONS[name](tokens).weights_T, CORRECTIONS[name](moved).weights_T)


@pytest.mark.parametrize("name", CORRECTIONS)
def test_weights_carry_no_gradient(name: str):
    tokens = make_tokens()

    found = CORRECTIONS[name](replace(tokens, old_T=tokens.old_T.clone().requires_grad_()))

    assert not found.weights_T.requires_grad


@pytest.mark.parametrize("name", sorted(CORRECTIONS.keys() - {"none"}))
def test_a_token_without_a_logprob_is_dropped_and_counted(name: str):
    tokens = of_ratios((1.0, 1.0), (1.0,))

    found = CORRECTIONS[name](replace(tokens, sampled_T=torch.tensor([0.0, 0.0, math.nan]).double()))

    assert found.weights_T.tolist() == [1, 1, 0]
    assert found.counts["not_finite"] == 1


@pytest.mark.parametrize("name", CORRECTIONS)
def test_wild_ratios_give_finite_weights(name: str):
    tokens = replace(of_ratios((1.0, 1.0), (1.0,)), old_T=torch.tensor([-1e30, 500.0, 1e30]))

    assert torch.isfinite(CORRECTIONS[name](tokens).weights_T).all()


def test_decoupled_ppo_weighs_by_old_over_sampled():
    # At current = old, the gradient of the weighted loss is that of plain importance sampling from the engine.
    tokens = make_tokens()
    current = tokens.old_T.clone().requires_grad_()

    from leyden_algorithms import TOKEN_LOSSES

    losses = TOKEN_LOSSES["ppo_clip"](replace(tokens, current_T=current))
    (losses * CORRECTIONS["tis"](tokens, ceiling=1e9).weights_T).sum().backward()

    expected = -(tokens.old_T - tokens.sampled_T).exp() * tokens.advantages_T
    assert current.grad.tolist() == pytest.approx(expected.tolist())
