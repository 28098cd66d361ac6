"""A linear layer with its adapter (arXiv 2106.09685) as one operation.

peft computes base(x) + scaling * B(A(x)) step by step, each step a tensor of the layer's output size, forward and
backward. Here the small products are added into the large one where it stands. Numbers and gradients are the same.
"""

from collections.abc import Callable
from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor


def fuse_adapters(model: torch.nn.Module) -> None:
    """Let every plain LoRA layer of `model` compute as one operation; others stay as they are."""
    for module in model.modules():
        if type(module) is Linear and _is_plain(module):
            # On the instance: peft keeps its parameters, its names and its switch.
            module.forward = _fused(module, module.forward)


def _is_plain(layer: Any) -> bool:
    """Say whether the layer has one adapter that is the product of two matrices, and nothing else."""
    return (
        list(layer.lora_A) == ["default"]
        and type(layer.get_base_layer()) is torch.nn.Linear
        and not layer.lora_variant
        and not layer.lora_bias["default"]
        and isinstance(layer.lora_dropout["default"], torch.nn.Identity)
    )


def _fused(layer: Any, plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    base, down, up = layer.get_base_layer(), layer.lora_A["default"], layer.lora_B["default"]

    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if layer.disable_adapters or layer.merged or args or kwargs:
            return plain(x, *args, **kwargs)
        flat = x.reshape(-1, x.shape[-1])
        out = _LoraLinear.apply(flat, base.weight, base.bias, down.weight, up.weight, layer.scaling["default"])
        return out.view(*x.shape[:-1], -1)

    return forward


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scaling: float
    ) -> Tensor:
        ctx.dtypes, x = (x.dtype, down.dtype), x.to(weight.dtype)
        down, up = down.to(weight.dtype), up.to(weight.dtype)
        small = torch.mm(x, down.T)
        out = torch.mm(x, weight.T) if bias is None else torch.addmm(bias, x, weight.T)
        out.addmm_(small, up.T, alpha=scaling)
        ctx.scaling = scaling
        ctx.save_for_backward(x, weight, down, up, small)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, down, up, small = ctx.saved_tensors
        (grad,) = grads
        x_dtype, adapter_dtype = ctx.dtypes
        d_small = torch.mm(grad, up).mul_(ctx.scaling)
        d_x = None
        if ctx.needs_input_grad[0]:
            d_x = torch.mm(grad, weight).addmm_(d_small, down).to(x_dtype)
        d_down = torch.mm(d_small.T, x).to(adapter_dtype)
        d_up = torch.mm(grad.T, small).mul_(ctx.scaling).to(adapter_dtype)
        return d_x, None, None, d_down, d_up, None
