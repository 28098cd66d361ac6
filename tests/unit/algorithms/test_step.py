"""A whole step, from episodes to the loss, by the tables alone."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from leyden_algorithms import (
    AGGREGATIONS,
    COMPARISONS,
    CORRECTIONS,
    CREDIT_STRATEGIES,
    TOKEN_LOSSES,
    WITHIN_GROUPS,
    Episodes,
    Tokens,
    Totals,
)
from support.policies import LENGTHS, make_tokens

REWARDS, CALLS = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([3, 2])
EPISODES = Episodes(
    rewards_E=REWARDS,
    calls_E=CALLS,
    groups_E=torch.zeros(2, dtype=torch.int64),
    signals_C=torch.tensor([0.5, 0.0, 0.0, 0.0, -0.5], dtype=torch.float64),
    states_C=torch.tensor([1, 2, 3, 1, 2]),
    values_C=torch.tensor([0.5, 0.5, 0.75, 0.5, 0.25], dtype=torch.float64),
)
TOTALS = Totals(tokens=sum(LENGTHS), samples=len(LENGTHS))


def step_loss(
    credit: str, comparison: str, loss: str, correction: str, aggregation: str, tokens: Tokens
) -> torch.Tensor:
    """Compute a step's loss; each call of the episodes is a sample of `tokens`."""
    episodes = replace(EPISODES, rewards_E=REWARDS[:, None]) if comparison == "gdpo" else EPISODES
    advantages_C = CREDIT_STRATEGIES[credit](episodes, COMPARISONS[comparison])
    tokens = replace(tokens, advantages_T=torch.repeat_interleave(advantages_C, tokens.lengths_S))
    weights_T = CORRECTIONS[correction](tokens).weights_T
    options = {"length": 8} if aggregation == "constant" else {}
    return AGGREGATIONS[aggregation](TOKEN_LOSSES[loss](tokens) * weights_T, tokens.lengths_S, TOTALS, **options)


def fits(credit: str, comparison: str) -> bool:
    if comparison == "gdpo":
        return credit in ("identical", "discounted")
    return credit != "gigpo" or comparison in WITHIN_GROUPS


PAIRS = [pair for pair in product(CREDIT_STRATEGIES, COMPARISONS) if fits(*pair)]


def check_sound(*names: str) -> None:
    tokens = make_tokens(moved=0.01)
    current = tokens.current_T.clone().requires_grad_()

    found = step_loss(*names, replace(tokens, current_T=current))
    found.backward()

    assert torch.isfinite(found)
    assert torch.isfinite(current.grad).all()
    assert current.grad.abs().max() > 0


@pytest.mark.parametrize(("credit", "comparison"), PAIRS)
def test_every_credit_goes_with_the_comparisons_that_fit(credit: str, comparison: str):
    check_sound(credit, comparison, "dapo", "tis", "token_mean")


@pytest.mark.parametrize("loss", TOKEN_LOSSES)
def test_every_loss_goes_with_every_correction_and_aggregation(loss: str):
    for correction, aggregation in product(CORRECTIONS, AGGREGATIONS):
        check_sound("identical", "grpo", loss, correction, aggregation)


def test_a_step_makes_what_was_good_likelier():
    tokens = make_tokens(moved=0.0)
    current = tokens.current_T.clone().requires_grad_()

    step_loss("identical", "grpo", "dapo", "tis", "token_mean", replace(tokens, current_T=current)).backward()

    good = sum(LENGTHS[:3])
    assert (current.grad[:good] < 0).all()
    assert (current.grad[good:] > 0).all()
