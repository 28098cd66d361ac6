"""Tokens are drawn from the distribution whose logprobs are reported."""

import pytest
import torch

from leyden_engine.sampling import UNIFORM_BITS, choose

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def draw(temperature: float, top_p: float | None, uniforms: torch.Tensor, logits: torch.Tensor = LOGITS) -> tuple:
    count = len(uniforms)
    nucleus = None if top_p is None else torch.full((count,), top_p)
    return choose(logits.expand(count, -1), torch.full((count,), temperature), nucleus, uniforms)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_frequencies_match_the_logprobs(temperature: float) -> None:
    uniforms = torch.linspace(0, 1, 10_001, dtype=torch.float64)[:-1]
    tokens, logprobs, all_logprobs = draw(temperature, None, uniforms)
    wanted = (LOGITS[0] / temperature).log_softmax(-1)
    assert torch.allclose(tokens.bincount(minlength=4) / 10_000, wanted.exp(), atol=2e-4)
    assert torch.allclose(all_logprobs[0], wanted)
    assert torch.equal(logprobs, all_logprobs[0][tokens])


def test_top_p_renormalises_over_what_is_left() -> None:
    uniforms = torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1]
    tokens, logprobs, all_logprobs = draw(1.0, 0.7, uniforms)
    assert set(tokens.tolist()) == {0, 1}  # 0.64 alone is not enough, 0.64 + 0.24 is.
    assert torch.allclose(all_logprobs[0].exp()[:2].sum(), torch.tensor(1.0))
    assert all_logprobs[0][2:].tolist() == [-torch.inf, -torch.inf]
    assert logprobs.isfinite().all()


def test_top_p_always_leaves_one_token() -> None:
    tokens, logprobs, _ = draw(1.0, 1e-6, torch.tensor([0.0, 0.5, 0.999], dtype=torch.float64))
    assert tokens.tolist() == [0, 0, 0] and logprobs.tolist() == [0.0, 0.0, 0.0]


def test_greedy_reports_the_plain_distribution() -> None:
    tokens, logprobs, _ = draw(0.0, 0.1, torch.tensor([0.0, 0.99], dtype=torch.float64))
    assert tokens.tolist() == [0, 0]
    assert torch.allclose(logprobs, LOGITS.log_softmax(-1)[0, 0].expand(2))


def test_rows_are_independent() -> None:
    logits = LOGITS.repeat(3, 1)
    tokens, logprobs, _ = choose(
        logits,
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([1.0, 0.5, 1.0]),
        torch.tensor([0.99, 0.99, 0.99], dtype=torch.float64),
    )
    assert tokens.tolist() == [0, 0, 3]
    plain = LOGITS.log_softmax(-1)[0]
    assert torch.allclose(logprobs, torch.stack([plain[0], torch.tensor(0.0), plain[3]]))


def test_the_smallest_random_number_draws_a_possible_token() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 0.0]])
    tokens, logprobs, _ = draw(1.0, None, torch.tensor([0.0], dtype=torch.float64), logits)
    assert tokens.tolist() == [1] and logprobs.isfinite().all()


def test_the_largest_random_number_draws_a_possible_token() -> None:
    largest = torch.tensor([1 - 2.0**-UNIFORM_BITS], dtype=torch.float64)
    torch.manual_seed(0)
    for _ in range(20):
        logits = torch.randn(1, 5000) * 5
        logits[:, 2500:] = -torch.inf
        tokens, logprobs, _ = draw(1.0, None, largest, logits)
        assert tokens.item() < 2500 and logprobs.isfinite().all()
