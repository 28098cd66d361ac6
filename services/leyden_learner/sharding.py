"""The frozen base in parts: each process keeps its share of every layer, and gathers a layer when it computes it.

FSDP2 (torch's `fully_shard`, which accelerate's own plugin applies) on the decoder's layers alone. The adapters stay
whole in every process, for they are small and their gradients are summed anyway; embedding and head too, for the
shared pass reads the head's matrix by itself. A layer is gathered by all processes at once, so all of them must make
the same number of passes: one with nothing left makes an idle pass.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from leyden_learner.samples import Sample

IDLE = Sample(tokens=torch.zeros(2, dtype=torch.int64), sampled_logprobs=torch.zeros(1), temperature=1.0, advantage=0.0)
"""What an idle pass computes, and nobody looks at."""


def shard_layers(model: Any, device: torch.device) -> bool:
    """Shard the decoder's layers over all processes, moving them to `device`; False where it has no such list.

    Raises ValueError where there is only one process.
    """
    if not dist.is_initialized() or dist.get_world_size() < 2:
        raise ValueError("`fsdp2` shards over processes, and there is only one")
    layers = getattr(model.get_decoder(), "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        return False
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    whole = {weight for name, weight in model.named_parameters() if "lora_" in name}
    for layer in layers:
        fully_shard(layer, mesh=mesh, ignored_params=whole)
    return True
