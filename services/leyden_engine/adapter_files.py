"""Reads an adapter as peft writes it, strictly: every tensor must be one that the model will use."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig
from safetensors.torch import load_file
from torch import Tensor

from leyden_engine.lora import Adapter

_PREFIX = "base_model.model."
_MAY_DIFFER = {
    "r", "lora_alpha", "use_rslora", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "lora_dropout", "inference_mode", "task_type", "base_model_name_or_path", "revision", "peft_version",
    "auto_mapping",
}  # fmt: skip
"""Settings of peft's LoraConfig that are applied, or that change nothing once training is over."""
_PLAIN_STARTS = (True, False, "gaussian")
"""Values of `init_lora_weights` that leave the base model's weights alone."""


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
    plain = LoraConfig()
    names = {one.name for one in fields(config)} - _MAY_DIFFER - {"init_lora_weights"}
    used = sorted(name for name in names if getattr(config, name) != getattr(plain, name))
    if config.init_lora_weights not in _PLAIN_STARTS:
        used.append("init_lora_weights")
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
