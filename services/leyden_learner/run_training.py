"""One run, from its newest checkpoint to its last group."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

import structlog

from leyden_contracts import AdapterManifest, Control, Group, RunSpec, Trajectory
from leyden_learner import checkpoint
from leyden_learner.batch import Batch
from leyden_learner.compute import DEFAULT, Compute
from leyden_learner.groups import GroupReader
from leyden_learner.metrics import observe
from leyden_learner.policy import UnknownModel
from leyden_learner.probes import begin_probes, choose_probes, finish_probes
from leyden_learner.trainer import Trainer
from leyden_ledger import Ledger, RunState, RunSummary
from leyden_runtime.failpoints import failpoint
from leyden_storage import ObjectStore

log = structlog.get_logger()

_UNFINISHED = ("train:queued", "train:running", "train:collecting")


class Progress(StrEnum):
    """What `RunTraining.advance` did."""

    TRAINED = "trained"
    WAITING = "waiting"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run's training needs from outside."""

    ledger: Ledger
    store: ObjectStore
    models: Mapping[str, Path]
    """Folders of the base models, by name."""
    device: str = "auto"
    compute: Compute = DEFAULT


class RunTraining:
    """Takes the run's groups, a step's worth at a time; each batch makes exactly one version."""

    def __init__(self, around: Surroundings, spec: RunSpec, trainer: Trainer, history: list[AdapterManifest]) -> None:
        self._around = around
        self._spec = spec
        self._run = str(spec.id)
        self._trainer = trainer
        self._newest = history[-1] if history else None
        consumed = [group for manifest in history for group in manifest.groups]
        self._groups_consumed = len(consumed)
        self._reader = GroupReader(around.ledger, around.store, self._run, consumed)

    @classmethod
    async def resume(cls, around: Surroundings, run: str) -> Self:
        """Load the newest checkpoint, or begin at version 0; announce it again, in case a crash came between.

        Raises UnknownModel, CheckpointDamaged, LedgerError, StoreError.
        """
        spec = await around.ledger.runs.get(run)
        training = cls(around, spec, *await asyncio.to_thread(_load, around, spec))
        await training._announce()
        return training

    async def advance(self) -> Progress:
        """Take one step if its groups are finished."""
        # Before the groups are read: what it says of them stays true.
        summary = await self._around.ledger.runs.summary(self._run)
        if summary.state is RunState.CANCELLED:
            return Progress.FINISHED
        wanted = self._spec.algorithm.groups_per_step
        groups = await self._reader.peek(wanted)
        if len(groups) < wanted and not _is_last(summary):
            return Progress.WAITING
        if not groups:
            await self._around.ledger.runs.finish(self._run)
            return Progress.FINISHED
        trajectories = [await self._reader.trajectories(group) for group in groups]
        self._newest = await asyncio.to_thread(self._train, groups, trajectories)
        failpoint("learner.committed")
        self._reader.take(groups)
        self._groups_consumed += len(groups)
        await self._announce()
        return Progress.TRAINED

    def _train(self, groups: list[Group], trajectories: list[list[Trajectory]]) -> AdapterManifest:
        """Take the step and commit it as one checkpoint."""
        trainer, ids = self._trainer, [group.id for group in groups]
        batch = trainer.build_batch(list(zip(ids, trajectories, strict=True)))
        probes = begin_probes(trainer.policy, self._probe_tokens(batch))
        metrics = trainer.step(batch)
        files = trainer.files()
        manifest = AdapterManifest(
            run=self._run,
            role=self._spec.lead_role,
            version=trainer.version,
            parent=trainer.version - 1,
            files=checkpoint.digests(files),
            groups=ids,
            trained_episodes=list(batch.episodes),
            skipped=batch.skipped,
            probes=finish_probes(trainer.policy, probes),
            metrics=metrics,
            config=self._spec.algorithm.model_dump(mode="json"),
            created=time.time(),
        )
        checkpoint.commit(self._around.store, manifest, files)
        observe(manifest)
        shown = {name: round(value, 4) for name, value in metrics.items()}
        log.info("version_committed", run=self._run, version=manifest.version, skipped=len(batch.skipped), **shown)
        return manifest

    def _probe_tokens(self, batch: Batch) -> list[list[int]]:
        if not batch.rollouts and self._newest:
            return [probe.token_ids for probe in self._newest.probes]
        return choose_probes(batch.rollouts, self._trainer.policy.vocabulary, self._spec.seed)

    async def _announce(self) -> None:
        """Tell the ledger of the newest checkpoint; safe to repeat."""
        training = self._around.ledger.training
        if self._newest and self._spec.algorithm.control is not Control.UNPUBLISHED:
            await training.publish(self._run, self._newest.version)
            failpoint("learner.published")
        if self._newest:
            await training.consumed(self._run, self._groups_consumed)


def _load(around: Surroundings, spec: RunSpec) -> tuple[Trainer, list[AdapterManifest]]:
    folder = around.models.get(spec.base_model)
    if folder is None:
        known = ", ".join(sorted(around.models))
        raise UnknownModel(f"this learner has no base model {spec.base_model!r}; it has: {known}")
    history = checkpoint.committed(around.store, str(spec.id), spec.lead_role)
    trainer = Trainer(spec, folder, around.device, around.compute)
    if history:
        trainer.restore(history[-1].version, checkpoint.read_files(around.store, history[-1]))
    return trainer, history


def _is_last(summary: RunSummary) -> bool:
    """Say whether no training episode will finish any more."""
    return summary.state is not RunState.OPEN and not any(summary.counts.get(name) for name in _UNFINISHED)
