"""What a start learns from, wherever it is."""

from pathlib import Path

from transformers import AutoConfig

from leyden_contracts import DpoStart, RunSpec, SftStart, StoredStart
from leyden_learner.start.chat import Chat
from leyden_learner.start.errors import StartRefused
from leyden_learner.start.lines import units_of_lines
from leyden_learner.start.stored import Reading, examples, pairs
from leyden_learner.start.units import Units, fitting
from leyden_storage import ObjectStore
from leyden_storage.starts import start_lines
from leyden_storage.trajectories import UnreadableBatch, stored_trajectories


def uploaded_units(store: ObjectStore, spec: RunSpec, kind: str, stored: StoredStart, folder: Path) -> Units:
    """Return the units of uploaded lines. Raises StartRefused, StoreError."""
    return units_of_lines(start_lines(store, str(spec.id), stored), kind, Chat.load(folder), spec.trained_roles)


def units_of_run(store: ObjectStore, spec: RunSpec, start: SftStart | DpoStart, folder: Path, vocabulary: int) -> Units:
    """Return the units of another run's trajectories. Raises StartRefused, StoreError."""
    there = stored_trajectories(store, str(start.run))
    try:
        if isinstance(start, DpoStart):
            return pairs(there, Reading(spec, None, vocabulary), start)
        return examples(there, Reading(spec, Chat.load(folder), vocabulary), start.min_reward)
    except UnreadableBatch as error:
        raise StartRefused(f"trajectories of run {start.run!r} cannot be read: {error}") from error


def fitted(units: Units, start: SftStart | DpoStart, folder: Path) -> Units:
    """Return what the model has positions for. Raises StartRefused as `fitting` does."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    return fitting(units, getattr(config, "max_position_embeddings", None), start.max_length)
