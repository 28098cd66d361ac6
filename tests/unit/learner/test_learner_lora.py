"""The fused adapter against peft's own."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from leyden_learner.forward.lora import fuse_adapters


class Two(nn.Module):
    """One layer with a bias, one without."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(6, 9, dtype=dtype), nn.Linear(9, 5, bias=False, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(x)))


def make(fused: bool, dtype: torch.dtype = torch.float64, **config: object) -> nn.Module:
    model = get_peft_model(Two(dtype), LoraConfig(r=3, lora_alpha=7, target_modules=["one", "two"], **config))
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = torch.randn(weight.shape, dtype=weight.dtype)
    if fused:
        fuse_adapters(model)
    return model


def fused_layers(model: nn.Module) -> int:
    return sum("forward" in vars(module) for module in model.modules())


def outcome(model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = model(x)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return [out, *torch.autograd.grad((out.double() ** 2).sum(), [x, *weights])]


def test_outputs_and_gradients_are_pefts():
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    plain, fused = make(False), make(True)

    assert (fused_layers(plain), fused_layers(fused)) == (0, 2)
    for found, expected in zip(outcome(fused, x), outcome(plain, x), strict=True):
        assert torch.allclose(found, expected, atol=1e-12)


def test_without_the_adapter_the_base_answers():
    x = torch.randn(4, 6, dtype=torch.float64)
    fused = make(True)

    with fused.disable_adapter():
        assert torch.equal(fused(x), Two(torch.float64)(x))
    assert not torch.equal(fused(x), Two(torch.float64)(x))


def test_over_a_base_in_bfloat16_the_adapters_gradients_are_float32():
    x = torch.randn(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (outcome(make(fused, torch.bfloat16), x) for fused in (True, False))

    assert {one.dtype for one in found[2:]} == {torch.float32}
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 0.05 * other.abs().max()


@pytest.mark.parametrize("config", [{"lora_dropout": 0.1}, {"use_dora": True}, {"lora_bias": True}])
@pytest.mark.filterwarnings("ignore:.*lora_bias")
def test_an_adapter_of_another_kind_stays_pefts(config: dict):
    assert fused_layers(make(True, torch.float32, **config)) == 0
