"""Each kernel of tree attention against ordinary attention, path by path: outputs and gradients."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from leyden_learner.forward import attention
from leyden_learner.forward.attention import choose_kernel, flash_tree, flex_tree, masked_tree
from leyden_learner.forward.tree import Forest, plant
from support.forest import sequences

CPU = torch.device("cpu")
HEADS, SIZE, SCALE = 3, 8, 0.4
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
KERNELS = [
    pytest.param(flash_tree, "cpu", id="flash-cpu"),
    pytest.param(masked_tree, "cpu", id="masked-cpu"),
    pytest.param(masked_tree, "cuda", id="masked-cuda", marks=no_gpu),
    pytest.param(flex_tree, "cuda", id="flex-cuda", marks=no_gpu),
]


def inputs(forest: Forest, device: str, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    # As a model makes them: heads are the last but one dimension in memory.
    shape = (1, forest.tokens.numel(), HEADS, SIZE)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype) for _ in range(4)]
    return [one.transpose(1, 2).detach().requires_grad_() for one in made]


def path_by_path(forest: Forest, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend along every path alone, and put the outputs where they belong."""
    out = torch.zeros_like(query)
    for path in (one.to(query.device) for one in forest.paths):
        alone = scaled_dot_product_attention(
            query[:, :, path], key[:, :, path], value[:, :, path], is_causal=True, scale=SCALE
        )
        out = out.index_copy(2, path, alone)
    return out


def with_grads(attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, grad: Tensor) -> list[Tensor]:
    out = attend(query, key, value)
    return [out, *torch.autograd.grad(out, (query, key, value), grad.detach())]


def largest_difference(kernel: attention.Kernel, given: list[Tensor], device: str, dtype: torch.dtype) -> float:
    forest = plant(given, least=1)
    made = inputs(forest, device, dtype)
    attend = kernel(forest, torch.device(device))
    found = with_grads(lambda q, k, v: attend(q, k, v, SCALE), *made)
    expected = with_grads(lambda q, k, v: path_by_path(forest, q, k, v), *made)
    return max((one - other).abs().max().item() for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(("kernel", "device"), KERNELS)
@given(given=sequences())
@settings(max_examples=30)
def test_a_kernel_computes_what_attention_along_each_path_does(kernel, device, given: list[Tensor]):
    exact = device == "cpu"
    dtype = torch.float64 if exact else torch.float32

    assert largest_difference(kernel, given, device, dtype) < (1e-12 if exact else 1e-4)


@given(given=sequences())
@settings(max_examples=10)
def test_flash_in_float32(given: list[Tensor]):
    assert largest_difference(flash_tree, given, "cpu", torch.float32) < 1e-5


@given(given=sequences())
@settings(max_examples=5)
def test_flex_sees_the_same_forward_on_the_cpu(given: list[Tensor]):
    forest = plant(given, least=1)
    made = [one.detach() for one in inputs(forest, "cpu", torch.float32)[:3]]

    found = flex_tree(forest, CPU)(*made, SCALE)

    assert torch.allclose(found, path_by_path(forest, *made), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_flash_kernel_is_chosen_on_the_cpu(dtype: torch.dtype):
    assert choose_kernel(CPU, dtype, 16) is flash_tree


def test_without_the_private_kernels_the_mask_is_used(monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(attention, "_flash", gone)

    assert choose_kernel(CPU, torch.float32, 16) is masked_tree


def test_a_kernel_that_changed_its_meaning_is_not_used(monkeypatch: pytest.MonkeyPatch):
    plain = attention._flash

    def in_bits(*args: object) -> tuple[Tensor, Tensor]:
        out, lse = plain(*args)
        return out, lse / 0.6931

    monkeypatch.setattr(attention, "_flash", in_bits)

    assert choose_kernel(CPU, torch.float32, 16) is masked_tree
