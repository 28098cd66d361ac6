"""What people watch: sums over micro-batches and over processes."""

import math

import pytest
import torch

from leyden_algorithms import RatioStats
from support.policies import make_tokens


def logs(*ratios: float) -> torch.Tensor:
    return torch.log(torch.tensor(ratios))


def add(stats: RatioStats, part: slice, entropies: torch.Tensor | None = None) -> RatioStats:
    tokens = make_tokens()
    entropies = None if entropies is None else entropies[part]
    stats.add(tokens.current_T[part], tokens.old_T[part], tokens.advantages_T[part], entropies)
    return stats


def test_by_hand():
    stats = RatioStats(0.2, 0.28)
    stats.add(logs(2.0, 1.0, 1.5), torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0.5, 1.0, 0.0]))
    stats.add(logs(0.5), torch.zeros(1), torch.tensor([-1.0]))

    metrics = stats.metrics()

    assert metrics["ratio_mean"] == pytest.approx(5 / 4)
    assert metrics["ratio_max"] == pytest.approx(2)
    assert metrics["kl"] == pytest.approx((5 - 4 - math.log(1.5)) / 4)
    assert metrics["clip_fraction_high"] == metrics["clip_fraction_low"] == 1 / 4
    assert metrics["clip_fraction"] == 2 / 4
    assert metrics["effective_samples"] == pytest.approx(25 / (4 * 7.5))
    assert metrics["entropy"] == pytest.approx(0.5)


def test_equal_ratios_are_worth_all_their_tokens():
    stats = RatioStats(0.2, 0.2)
    stats.add(logs(3.0, 3.0), torch.zeros(2), torch.zeros(2))

    assert stats.metrics()["effective_samples"] == pytest.approx(1)


def test_one_heavy_token_is_worth_one():
    stats = RatioStats(0.2, 0.2)
    stats.add(logs(1e6, *[1e-6] * 9), torch.zeros(10), torch.zeros(10))

    assert stats.metrics()["effective_samples"] == pytest.approx(1 / 10)


@pytest.mark.parametrize("cut", [1, 9])
def test_parts_and_processes_add_up(cut: int):
    entropies = torch.rand(18, dtype=torch.float64)
    whole = add(RatioStats(0.2, 0.28), slice(None), entropies)
    parts = add(add(RatioStats(0.2, 0.28), slice(cut), entropies), slice(cut, None), entropies)
    # What two processes do with all-reduce.
    one, other = (add(RatioStats(0.2, 0.28), part, entropies) for part in (slice(cut), slice(cut, None)))
    one.sums += other.sums
    one.largest = torch.maximum(one.largest, other.largest)

    assert parts.metrics() == pytest.approx(whole.metrics(), rel=1e-12)
    assert one.metrics() == pytest.approx(whole.metrics(), rel=1e-12)


def test_sums_are_plain_tensors():
    stats = add(RatioStats(0.2, 0.2), slice(None))

    assert (stats.sums.shape, stats.largest.shape) == ((8,), (1,))
    assert stats.sums.dtype == stats.largest.dtype == torch.float64
    assert not stats.sums.requires_grad


def test_nothing_is_counted_of_nothing():
    stats = RatioStats(0.2, 0.2)
    stats.add(torch.zeros(0), torch.zeros(0), torch.zeros(0))

    assert stats.metrics() == {}


def test_wild_ratios_stay_finite():
    stats = RatioStats(0.2, 0.2)
    stats.add(torch.tensor([0.0, -1e30]), torch.tensor([-500.0, 0.0]), torch.ones(2))

    assert all(math.isfinite(value) for value in stats.metrics().values())
