"""Attention in which every token sees its own path of a forest only; exact, with no mask of T x T where it can be.

`flash_tree` (CPU): plain causal attention within each strip and plain full attention along each branch, by the same
kernels that ordinary attention uses; a token's pieces are merged by the log-sum-exp of their scores, which is what one
softmax over all of its keys would give. The backward kernel, given the merged output and log-sum-exp, returns each
piece's own part of the gradient, as in ring attention (arXiv 2310.01889).
`flex_tree` (CUDA): flex attention; whole blocks that nobody sees are skipped.
`masked_tree` (anything): scaled dot product attention with a mask.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import structlog
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from leyden_learner.forward.tree import Forest, plant

log = structlog.get_logger()

NAME = "leyden_tree"
"""Of `tree_attention`, as transformers knows it. No mask function has this name, so transformers makes no mask."""

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(queries, keys, values, all of shape [1, H, T, D], scale) -> outputs [1, H, T, D]."""
Kernel = Callable[[Forest, torch.device], Attend]
"""What prepares attention over one forest, for all layers."""


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    tree: Attend | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers asks; plainly causal where no `tree` came with the forward pass."""
    if tree is None:
        plain, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=0.0, scaling=scaling, **others
        )
        return plain, None
    # Where several heads of queries share one head of keys.
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    return tree(query, key, value, scaling).transpose(1, 2), None


AttentionInterface.register(NAME, tree_attention)


def masked_tree(forest: Forest, device: torch.device) -> Attend:
    """Attend under a mask of T x T."""
    place = torch.arange(forest.ends.numel(), device=device)
    mask = (place[:, None] >= place) & (place[:, None] < forest.ends.to(device))
    return lambda query, key, value, scale: scaled_dot_product_attention(query, key, value, mask, scale=scale)


def flex_tree(forest: Forest, device: torch.device) -> Attend:
    """Attend by flex attention: the backward pass needs CUDA."""
    from torch.nn.attention.flex_attention import create_block_mask

    ends, size = forest.ends.to(device), forest.ends.numel()

    def visible(_b: Tensor, _h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & (q < ends[k])

    blocks = create_block_mask(visible, None, None, size, size, device=str(device))
    flex = _flex(device.type)
    return lambda query, key, value, scale: flex(query, key, value, block_mask=blocks, scale=scale)


@cache
def _flex(device: str) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # Not compiled, it computes everything and masks it: right, and slow.
    return torch.compile(flex_attention, dynamic=True) if device == "cuda" else flex_attention


def flash_tree(forest: Forest, device: torch.device) -> Attend:
    """Attend by the CPU's flash kernels."""
    return lambda query, key, value, scale: _FlashTree.apply(query, key, value, forest, scale)


class _FlashTree(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, forest: Forest, scale: float) -> Tensor:
        # In memory, heads stand within tokens: as the kernels write them, and as the model reads them.
        out = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
        lse = torch.empty_like(out[..., 0], dtype=torch.promote_types(out.dtype, torch.float32))
        for start, end in forest.strips:
            own = slice(start, end)
            out[:, :, own], lse[:, :, own] = _flash(query[:, :, own], key[:, :, own], value[:, :, own], True, scale)
        for q0, q1, k0, k1 in forest.branches:
            above = _flash(query[:, :, q0:q1], key[:, :, k0:k1], value[:, :, k0:k1], False, scale)
            _merge(out[:, :, q0:q1], lse[:, :, q0:q1], *above)
        ctx.forest, ctx.scale = forest, scale
        ctx.save_for_backward(query, key, value, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), saved = grads, ctx.saved_tensors
        d_query, d_key, d_value = (torch.empty_like(saved[0]) for _ in range(3))
        for start, end in ctx.forest.strips:
            own = slice(start, end)
            parts = _flash_backward(grad, saved, (start, end), (start, end), True, ctx.scale)
            d_query[:, :, own], d_key[:, :, own], d_value[:, :, own] = parts
        for q0, q1, k0, k1 in ctx.forest.branches:
            parts = _flash_backward(grad, saved, (q0, q1), (k0, k1), False, ctx.scale)
            d_query[:, :, q0:q1] += parts[0]
            d_key[:, :, k0:k1] += parts[1]
            d_value[:, :, k0:k1] += parts[2]
        return d_query, d_key, d_value, None, None


def _merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Add, in place, what the same queries saw elsewhere."""
    both = torch.logaddexp(lse, more_lse)
    out.mul_((lse - both).exp_()[..., None]).add_(more * (more_lse - both).exp_()[..., None])
    lse.copy_(both)


def _flash(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    # Private to torch, which is why `choose_kernel` tries them first.
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return flash(query, key, value, 0.0, causal, scale=scale)


def _flash_backward(
    grad: Tensor,
    saved: tuple[Tensor, ...],
    queries: tuple[int, int],
    keys: tuple[int, int],
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of these queries, and of these keys and values, from this piece alone."""
    query, key, value, out, lse = saved
    q, k = slice(*queries), slice(*keys)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(
        grad[:, :, q],
        query[:, :, q],
        key[:, :, k],
        value[:, :, k],
        out[:, :, q],
        lse[:, :, q],
        0.0,
        causal,
        scale=scale,
    )


def choose_kernel(device: torch.device, dtype: torch.dtype, head_size: int) -> Kernel:
    """Return the fastest kernel that computes right here, and log which."""
    wanted = flex_tree if device.type == "cuda" else flash_tree
    problem = _problem(wanted, device, dtype, head_size)
    chosen = masked_tree if problem else wanted
    log.info("tree_attention_chosen", kernel=chosen.__name__, dtype=str(dtype), not_better=problem)
    return chosen


def _problem(kernel: Kernel, device: torch.device, dtype: torch.dtype, head_size: int) -> str | None:
    """Say why `kernel` cannot be used: it fails, or differs from `masked_tree` on a small forest."""
    forest = plant([torch.tensor(one) for one in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8], [1, 2, 3, 7, 9])], least=1)
    generator = torch.Generator().manual_seed(0)
    shape = (4, 1, 2, forest.tokens.numel(), head_size)
    inputs = torch.randn(shape, generator=generator).to(device, dtype)
    try:
        found, expected = _trial(kernel(forest, device), inputs), _trial(masked_tree(forest, device), inputs)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    tolerance = 0.05 if dtype is torch.bfloat16 else 1e-4
    return None if torch.allclose(found, expected, atol=tolerance, rtol=tolerance) else "its results differ"


def _trial(attend: Attend, inputs: Tensor) -> Tensor:
    """Return outputs and gradients, stacked."""
    query, key, value = (one.clone().requires_grad_() for one in inputs[:3])
    out = attend(query, key, value, 0.3)
    grads = torch.autograd.grad(out, (query, key, value), inputs[3])
    return torch.stack([out.detach(), *grads])
