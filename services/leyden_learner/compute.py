"""How a deployment computes; what is computed is the run's affair."""

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """Of the frozen base and of the products. The adapter, its optimizer and log-softmax are always float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Sharding(StrEnum):
    """Of the frozen base over processes."""

    NONE = "none"
    FSDP2 = "fsdp2"


@dataclass(frozen=True, slots=True)
class Compute:
    """Choices that change time and memory, never the objective."""

    precision: Precision = Precision.FLOAT32
    gradient_checkpointing: bool = False
    """Keep only the layers' inputs, and compute each layer again in the backward pass: less memory, more time."""
    shared_prefixes: bool = True
    """Compute tokens that samples begin with in common once. False: padded rows, as for models that do not fit."""
    sharding: Sharding = Sharding.NONE
    """`fsdp2`: each process keeps only its share of the base's layers. Less memory, more traffic; needs several."""


DEFAULT = Compute()
"""Right everywhere; the fastest on a CPU."""
