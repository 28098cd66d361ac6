"""Reads an adapter as peft writes it, strictly: every tensor must be one that the model will use."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig
from safetensors.torch import load_file
from torch import Tensor

from leyden_engine.lora import Adapter

_PREFIX = "base_model.model."
_UNSUPPORTED = (
    "use_dora", "use_qalora", "lora_bias", "modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication",
    "target_parameters", "trainable_token_indices", "alora_invocation_tokens", "megatron_config", "eva_config",
)  # fmt: skip
"""Settings of peft's LoraConfig that change the computation and must be off."""


class AdapterMissing(Exception):
    """There is no adapter in this folder."""


class AdapterUnusable(Exception):
    """The adapter's files are broken, or made for something that this engine or model does not have."""


def read_adapter(
    folder: Path, name: str, layers: dict[str, tuple[int, int]], dtype: torch.dtype, device: torch.device
) -> Adapter:
    """Read the adapter in `folder`.

    Args:
        folder: with `adapter_config.json` and `adapter_model.safetensors`.
        name: under which it will be served.
        layers: name of each linear layer that can take an adapter -> (in, out) features.
        dtype: of the model.
        device: of the model.

    Raises:
        AdapterMissing: a file is not there.
        AdapterUnusable: the files cannot be applied exactly.
    """
    files = [folder / "adapter_config.json", folder / "adapter_model.safetensors"]
    for file in files:
        if not file.is_file():
            raise AdapterMissing(f"{file} is not there")
    config = _read_config(folder)
    try:
        tensors = load_file(files[1])
    except Exception as error:  # safetensors raises its own class for each fault, and OSError
        raise AdapterUnusable(f"{files[1]} cannot be read: {error}") from error
    pairs = _pairs(tensors)
    _check_complete(pairs, config, layers)
    scale = config.lora_alpha / (config.r**0.5 if config.use_rslora else config.r)
    weights = {}
    for layer, pair in pairs.items():
        down, up = _check_pair(layer, pair, config.r, layers)
        weights[layer] = (down.T.to(device, dtype).contiguous(), (up.T.float() * scale).to(device, dtype).contiguous())
    return Adapter(name=name, path=str(folder), weights=weights)


def _read_config(folder: Path) -> Any:
    try:
        config = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # peft documents none; a broken file raises ValueError, TypeError, KeyError...
        raise AdapterUnusable(f"{folder}/adapter_config.json cannot be read: {error}") from error
    if not isinstance(config, LoraConfig):
        raise AdapterUnusable(f"{folder} holds an adapter of type {config.peft_type}; only LORA can be served")
    used = [setting for setting in _UNSUPPORTED if getattr(config, setting, None)]
    if config.bias != "none":
        used.append("bias")
    if used:
        raise AdapterUnusable(f"the adapter uses {', '.join(used)}, which this engine does not apply: train without")
    return config


def _pairs(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        layer, _, kind = key.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".")
        if kind not in ("lora_A", "lora_B"):
            raise AdapterUnusable(f"{key} is not the weight of a LoRA adapter")
        pairs.setdefault(layer, {})[kind] = tensor
    return pairs


def _check_complete(pairs: dict[str, Any], config: Any, layers: dict[str, tuple[int, int]]) -> None:
    if not pairs:
        raise AdapterUnusable("the adapter holds no weights")
    if isinstance(config.target_modules, str) or config.layers_to_transform is not None or config.exclude_modules:
        return
    wanted = {name for name in layers if name.rpartition(".")[2] in (config.target_modules or ())}
    missing = sorted(wanted - pairs.keys())
    if missing:
        raise AdapterUnusable(f"the adapter targets {missing[0]} but holds no weights for it ({len(missing)} missing)")


def _check_pair(
    layer: str, pair: dict[str, Tensor], rank: int, layers: dict[str, tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """Return A of shape [r, in] and B of shape [out, r]."""
    if layer not in layers:
        raise AdapterUnusable(f"the adapter changes {layer}, which this model does not have as a linear layer")
    if len(pair) != 2:
        raise AdapterUnusable(f"of {layer} only {next(iter(pair))} is there")
    a, b = pair["lora_A"], pair["lora_B"]
    inputs, outputs = layers[layer]
    if a.shape != (rank, inputs) or b.shape != (outputs, rank):
        raise AdapterUnusable(
            f"{layer}: shapes {tuple(a.shape)}, {tuple(b.shape)} do not fit rank {rank} and the model"
        )
    if not (a.isfinite().all() and b.isfinite().all()):
        raise AdapterUnusable(f"{layer} holds numbers that are not finite")
    return a, b
