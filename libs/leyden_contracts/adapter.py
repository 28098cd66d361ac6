"""Policy versions: immutable LoRA adapters, and the proof that travels with each."""

from typing import Any

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId, RoleName, RunId
from leyden_contracts.start import StartOrigin


class Probe(Message):
    """A token sequence, and what three policies think may come after some of its beginnings.

    A replica must agree with the first of them. Logprobs are natural logs at temperature 1, of shape [P].
    """

    token_ids: list[int]
    """Shape [T]."""
    places: list[int]
    """Lengths of the beginnings, 1 to T. Shape [P]."""
    next_ids: list[int]
    """The token after each that is compared: one of the likeliest by this version, for a replica lists no others."""
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
    """Group id -> why it gave no signal or was refused (`stale`, `too_few_trajectories`, `equal_rewards`,
    `too_easy`, `too_hard`, `too_long`, `cut_replies`, `text_only`, `no_trained_calls`, `not_finite`)."""
    probes: list[Probe]
    metrics: dict[str, float]
    """Of the training step: `reward_mean`, `loss`, `grad_norm`, `tokens`, `seconds`, ..."""
    config: dict[str, Any]
    """The run's algorithm section, as used; of a start, its own section."""
    start: StartOrigin | None = None
    """Where it came from, if it was made by the run's start and not by a step."""
    created: float
    """Seconds since the epoch, learner's clock. For people only; order comes from `version`."""


def adapter_name(run: str, role: str, version: int) -> str:
    """Return the name a replica serves this version under. A new name per version, never reused."""
    return f"{run}--{role}--v{version}"
