"""From losses of tokens to the loss of a step: whole, in parts, on several processes, with padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_algorithms import AGGREGATIONS, Totals
from support import plain_algorithms as plain
from support.policies import Rows, rows

OPTIONS = {"token_mean": {}, "sequence_mean": {}, "constant": {"length": 8}}
PLAIN = {
    "token_mean": plain.token_mean,
    "sequence_mean": plain.sequence_mean,
    "constant": lambda x: plain.constant(x, 8),
}

samples = st.lists(st.lists(st.integers(-16, 16).map(lambda n: n / 8), min_size=1, max_size=6), min_size=2, max_size=7)


def total(of: Rows) -> Totals:
    return Totals(tokens=sum(map(len, of)), samples=len(of))


def aggregate(name: str, part: Rows, totals: Totals) -> float:
    losses = torch.tensor([loss for row in part for loss in row], dtype=torch.float64)
    return AGGREGATIONS[name](losses, torch.tensor([len(row) for row in part]), totals, **OPTIONS[name]).item()


@pytest.mark.parametrize("name", AGGREGATIONS)
@settings(max_examples=25)
@given(losses=samples)
def test_each_is_the_mean_that_it_says(name: str, losses: Rows):
    assert aggregate(name, losses, total(losses)) == pytest.approx(PLAIN[name](losses), abs=1e-12)


def test_the_three_by_hand():
    losses = [[1.0, 3.0, 5.0], [1.0]]

    assert aggregate("token_mean", losses, total(losses)) == pytest.approx(10 / 4)
    assert aggregate("sequence_mean", losses, total(losses)) == pytest.approx((3 + 1) / 2)
    assert aggregate("constant", losses, total(losses)) == pytest.approx((9 / 8 + 1 / 8) / 2)


@pytest.mark.parametrize("name", AGGREGATIONS)
@settings(max_examples=20)
@given(losses=samples, data=st.data())
def test_micro_batches_sum_to_the_whole(name: str, losses: Rows, data: st.DataObject):
    cut = data.draw(st.integers(1, len(losses) - 1))

    parts = [aggregate(name, part, total(losses)) for part in (losses[:cut], losses[cut:])]

    assert sum(parts) == pytest.approx(aggregate(name, losses, total(losses)), abs=1e-12)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_two_processes_that_average_gradients_give_the_gradient_of_one(name: str):
    torch.manual_seed(0)
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
    data = torch.randn(9, 4, dtype=torch.float64)
    lengths = [4, 1, 2, 2]
    totals = Totals(tokens=9, samples=4)

    def gradient(first: int, end: int, processes: int) -> torch.Tensor:
        part = slice(sum(lengths[:first]), sum(lengths[:end]))
        losses = (data[part] @ weight).square()
        loss = AGGREGATIONS[name](losses, torch.tensor(lengths[first:end]), totals, **OPTIONS[name])
        return torch.autograd.grad(processes * loss, weight)[0]

    averaged = (gradient(0, 1, 2) + gradient(1, 4, 2)) / 2

    assert averaged.tolist() == pytest.approx(gradient(0, 4, 1).tolist(), rel=1e-12)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_gradients_by_finite_differences(name: str):
    losses = torch.randn(7, dtype=torch.float64, requires_grad=True)
    lengths, totals = torch.tensor([3, 4]), Totals(tokens=7, samples=2)

    assert torch.autograd.gradcheck(lambda x: AGGREGATIONS[name](x, lengths, totals, **OPTIONS[name]), losses)


@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("padding", [0, 5])
def test_padding_of_a_batch_leaves_no_trace(name: str, padding: int):
    losses = [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]
    wide = torch.full((3, 3 + padding), float("nan"), dtype=torch.float64)
    mask = torch.zeros_like(wide, dtype=torch.bool)
    for i, row in enumerate(losses):
        wide[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), True

    found = AGGREGATIONS[name](wide[mask], mask.sum(1), total(losses), **OPTIONS[name])

    assert found.item() == pytest.approx(PLAIN[name](losses))


def test_only_sequence_mean_weighs_a_token_by_its_neighbours():
    shares = {}
    for name in AGGREGATIONS:
        losses = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        AGGREGATIONS[name](losses, torch.tensor([3, 1]), Totals(tokens=4, samples=2), **OPTIONS[name]).backward()
        shares[name] = rows(losses.grad, (3, 1))

    assert shares["token_mean"] == [[0.25] * 3, [0.25]]
    assert shares["sequence_mean"] == [pytest.approx([1 / 6] * 3), [0.5]]
    assert shares["constant"] == [[1 / 16] * 3, [1 / 16]]


@pytest.mark.parametrize(("tokens", "count"), [(0, 1), (1, 0)])
def test_a_step_without_tokens_is_refused(tokens: int, count: int):
    with pytest.raises(ValueError, match="at least one"):
        Totals(tokens=tokens, samples=count)


def test_a_constant_length_must_be_positive():
    with pytest.raises(ValueError, match="at least 1"):
        AGGREGATIONS["constant"](torch.zeros(1), torch.tensor([1]), Totals(tokens=1, samples=1), length=0)
