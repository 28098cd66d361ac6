"""The head a chunk at a time, against log-softmax over whole logits."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from leyden_learner.forward import head
from leyden_learner.forward.head import token_scores

N, D, V = 11, 6, 40


def given(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(N, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64).to(dtype)
    heat = torch.rand(N, generator=generator, dtype=torch.float64) + 0.5
    return hidden, weight, torch.randint(V, (N,), generator=generator), heat


def plain(hidden: Tensor, weight: Tensor, targets: Tensor, heat: Tensor) -> tuple[Tensor, Tensor]:
    logps = (hidden @ weight.T / heat[:, None]).log_softmax(-1)
    return logps.gather(1, targets[:, None])[:, 0], -(logps.exp() * logps).sum(1)


@pytest.mark.parametrize("chunk", [1, 3 * V, 1 << 20])
def test_logprobs_entropies_and_gradients_are_those_of_log_softmax(chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", chunk)
    inputs = given()
    weights = torch.randn(2, N, dtype=torch.float64)

    results = []
    for logprobs, entropy in (token_scores(*inputs, entropy=True), plain(*inputs)):
        loss = (weights[0] * logprobs + weights[1] * entropy).sum()
        results.append((logprobs, entropy, torch.autograd.grad(loss, inputs[0])[0]))

    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, atol=1e-12)


def test_gradients_agree_with_finite_differences():
    hidden, *others = given()

    assert torch.autograd.gradcheck(lambda x: token_scores(x, *others, entropy=True), (hidden,))
    assert torch.autograd.gradcheck(lambda x: token_scores(x, *others)[0], (hidden,))


def test_from_bfloat16_the_softmax_is_in_float32():
    hidden, weight, targets, heat = given(torch.bfloat16)

    found, _ = token_scores(hidden, weight, targets, heat.float())

    logits = (hidden @ weight.T).float() / heat.float()[:, None]
    assert found.dtype == torch.float32
    assert torch.allclose(found, logits.log_softmax(-1).gather(1, targets[:, None])[:, 0], atol=1e-5)


class Largest(TorchDispatchMode):
    """Remembers how large the largest tensor was."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple) else (result,):
            if isinstance(one, Tensor):
                self.elements = max(self.elements, one.numel())
        return result


def test_no_tensor_has_the_size_of_tokens_times_vocabulary(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", 1000)
    tokens, vocabulary = 300, 500
    hidden = torch.randn(tokens, 4, requires_grad=True)
    weight = torch.randn(vocabulary, 4)

    with Largest() as largest:
        scores = token_scores(hidden, weight, torch.zeros(tokens, dtype=torch.long), torch.ones(tokens), entropy=True)
        (scores[0].sum() + scores[1].sum()).backward()

    assert largest.elements <= 4 * max(tokens, vocabulary)
