"""An optimizer's state as safetensors, by the names of the weights, and back."""

from collections.abc import Sequence
from typing import Any

from safetensors.torch import load, save
from torch import Tensor


def dump(optimizer: Any, names: Sequence[str]) -> bytes:
    """Return the state; `names` are those of its weights, in its order."""
    states = optimizer.state_dict()["state"]
    return save(plain({f"{names[i]}:{field}": one for i, state in states.items() for field, one in state.items()}))


def restore(optimizer: Any, names: Sequence[str], data: bytes) -> None:
    """Go back to what `dump` returned. Raises KeyError where the names do not fit."""
    index = {name: i for i, name in enumerate(names)}
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in load(data).items():
        name, _, field = key.rpartition(":")
        states.setdefault(index[name], {})[field] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})


def plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors as they are stored: by name, whole, on the CPU."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
