"""Policy versions: immutable LoRA adapters, and the proof that travels with each."""

from typing import Any

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId, RoleName, RunId


class Probe(Message):
    """One fixed prompt, and what three policies think of it. A replica must agree with the first of them.

    Logprobs are those of tokens 2..T given their prefixes (a prompt's first token has none): shape [T - 1].
    """

    token_ids: list[int]
    """Shape [T]."""
    logprobs: list[float]
    """By this version, computed by the learner."""
    parent_logprobs: list[float]
    """By the version before it. What a replica serves that silently kept the old adapter."""
    base_logprobs: list[float]
    """By the base model. What a replica serves that silently ignores adapters."""


class AdapterManifest(Message):
    """The last object written of a checkpoint: its existence commits the version (DESIGN section 3, step 9)."""

    run: RunId
    role: RoleName
    version: int
    parent: int
    """The version it was trained from; 0 is the base model."""
    files: dict[str, str]
    """File name under `adapters/{role}/v{n}/` -> sha256 in hex. Adapter, optimizer and rng state."""
    groups: list[ObjectId]
    """Groups consumed by this step, in order. A group is in at most one manifest of a run (I3)."""
    trained_episodes: list[ObjectId]
    """Episodes whose trajectories entered the batch (I3)."""
    skipped: dict[str, str]
    """Group id -> why it gave no signal or was refused (`stale`, `too_few_trajectories`, `equal_rewards`)."""
    probes: list[Probe]
    metrics: dict[str, float]
    """Of the training step: `reward_mean`, `loss`, `grad_norm`, `tokens`, `seconds`, ..."""
    config: dict[str, Any]
    """The run's algorithm section, as used."""
    created: float
    """Seconds since the epoch, learner's clock. For people only; order comes from `version`."""


def adapter_name(run: str, role: str, version: int) -> str:
    """Return the name a replica serves this version under. A new name per version, never reused."""
    return f"{run}--{role}--v{version}"
