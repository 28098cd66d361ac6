"""The critic's fit: against the plain formula, and where there is little or nothing to learn from."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from leyden_algorithms import ValueHead, fit_values, value_loss


def make_states(count: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("count", "width"), [(40, 6), (6, 40)])
@pytest.mark.parametrize("ridge", [0.1, 1.0, 10.0])
def test_it_is_ridge_regression_on_standardised_features(count: int, width: int, ridge: float):
    states, returns = make_states(count, width), make_states(count, 1, seed=1)[:, 0]
    scale = (states.std(0, correction=0) + 1e-3 * states.square().mean().sqrt()) * width**0.5
    features = (states - states.mean(0)) / scale
    identity = ridge * torch.eye(width, dtype=torch.float64)
    plain = torch.linalg.solve(features.T @ features + identity, features.T @ (returns - returns.mean()))

    weights, constant = fit_values(states, returns, ridge)

    assert torch.allclose(weights, plain / scale, atol=1e-10)
    assert torch.allclose(states @ weights + constant, features @ plain + returns.mean(), atol=1e-10)


def test_without_a_ridge_to_speak_of_it_finds_a_linear_function():
    states = make_states(50, 5)
    returns = states @ torch.tensor([1.0, -2.0, 0.0, 0.5, 3.0], dtype=torch.float64) + 7

    weights, constant = fit_values(states, returns, 1e-9)

    assert weights.tolist() == pytest.approx([1, -2, 0, 0.5, 3], abs=1e-3)
    assert float(constant) == pytest.approx(7, abs=1e-3)


def test_the_size_of_a_feature_and_the_order_of_calls_do_not_matter():
    states, returns = make_states(30, 4), make_states(30, 1, seed=1)[:, 0]
    stretch, shift = torch.tensor([1.0, 2.0, 0.5, 3.0]), torch.tensor([0.0, 1.0, -1.0, 0.5])
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))

    def values(given: Tensor, its_returns: Tensor) -> Tensor:
        weights, constant = fit_values(given, its_returns)
        return given @ weights + constant

    expected = values(states, returns)
    assert torch.allclose(values(states * stretch + shift, returns), expected, atol=1e-2)
    assert torch.allclose(values(states[order], returns[order]), expected[order], atol=1e-10)


def test_states_that_are_alike_but_for_rounding_are_worth_their_mean():
    one = make_states(1, 16).float()
    rounding = 1e-6 * make_states(20, 16).float()
    returns = torch.arange(20.0)

    weights, constant = fit_values(one + rounding, returns)

    values = (one + rounding).double() @ weights + constant
    assert values.tolist() == pytest.approx([9.5] * 20, abs=1e-3)


@pytest.mark.parametrize("states", [torch.zeros(3, 4), torch.ones(3, 4), make_states(1, 4)], ids=["0", "1", "one"])
def test_one_state_alone_is_worth_what_it_earned(states: Tensor):
    weights, constant = fit_values(states, torch.full((states.shape[0],), 2.5))

    assert bool(torch.isfinite(weights).all())
    assert (states.double() @ weights + constant).tolist() == pytest.approx([2.5] * states.shape[0])


def test_few_noisy_calls_a_step_teach_it_more_than_gradient_steps():
    """Of what 60 kinds of calls are worth; with 33 calls a step, 15 steps, and noise as large as the differences."""
    kinds, truth = make_states(60, 64), make_states(60, 1, seed=1)[:, 0]
    draw = torch.Generator().manual_seed(2)
    steps = []
    for _ in range(15):
        seen = torch.randint(60, (33,), generator=draw)
        steps.append((kinds[seen], truth[seen] + torch.randn(33, generator=draw)))

    weights, constant = fit_values(*(torch.cat(one) for one in zip(*steps, strict=True)))

    def missed(values: Tensor) -> float:
        return (values - truth).square().mean().item()

    descended = [missed(_descend(steps, rate, passes)(kinds)) for rate in (1e-3, 3e-3, 1e-2) for passes in (1, 4, 16)]
    assert missed(kinds @ weights + constant) < 0.5
    assert missed(kinds @ weights + constant) < 0.8 * min(descended)


def _descend(steps: list[tuple[Tensor, Tensor]], rate: float, passes: int) -> Callable[[Tensor], Tensor]:
    head = ValueHead(steps[0][0].shape[1]).double()
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
    for states, returns in steps:
        for _ in range(passes):
            optimizer.zero_grad()
            value_loss(head(states), returns).mean().backward()
            optimizer.step()
    return lambda states: head(states).detach()
