"""One run, from its newest checkpoint to its last group."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

import structlog

from leyden_contracts import AdapterManifest, Control, Group, RunSpec, Trajectory
from leyden_learner import checkpoint
from leyden_learner.ahead import reading_ahead
from leyden_learner.batch import Batch
from leyden_learner.choice import StepChooser, asked_for
from leyden_learner.compute import DEFAULT, Compute
from leyden_learner.groups import GroupReader
from leyden_learner.metrics import GROUPS_ASKED, observe
from leyden_learner.policy import UnknownModel
from leyden_learner.probes import Begun, begin_probes, choose_probes, finish_probes
from leyden_learner.trackers.tracking import NO_TRACKING, Tracking
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
    make_trainer: Callable[..., Trainer] = Trainer
    """Of a run, its base model's folder, device and compute."""
    tracking: Tracking = NO_TRACKING


class RunTraining:
    """Takes the run's groups, a step's worth at a time; each batch makes exactly one version."""

    def __init__(self, around: Surroundings, spec: RunSpec, trainer: Trainer, history: list[AdapterManifest]) -> None:
        self._around = around
        self._spec = spec
        self._run = str(spec.id)
        self._trainer = trainer
        self._newest = history[-1] if history else None
        """Of the lead role."""
        consumed = [group for manifest in history for group in manifest.groups]
        self._groups_consumed = len(consumed)
        self._reader = GroupReader(around.ledger, around.store, self._run, consumed)
        self._chooser = StepChooser(self._reader, trainer)

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
        seen = await self._chooser.look()
        groups = seen.groups
        await self._ask(summary, seen.silent)
        if not seen.full and not _is_last(summary):
            return Progress.WAITING
        if not groups:
            await self._around.ledger.runs.finish(self._run)
            return Progress.FINISHED
        trajectories = await asyncio.gather(*map(self._chooser.trajectories, groups))
        failpoint("learner.read")
        async with reading_ahead(self._reader, len(groups), self._spec.algorithm.groups_per_step):
            self._newest = await asyncio.to_thread(self._train, groups, trajectories)
        failpoint("learner.committed")
        self._reader.take(groups)
        self._groups_consumed += len(groups)
        await self._announce()
        return Progress.TRAINED

    async def _ask(self, summary: RunSummary, silent: int) -> None:
        """Ask for groups in place of those that have no signal, if the ledger does not know yet."""
        steps = max(0, self._trainer.version - self._spec.first_version)
        asked = asked_for(self._spec.algorithm, steps, self._groups_consumed, silent)
        if asked > summary.groups_asked:
            await self._around.ledger.training.ask_for(self._run, asked)
        GROUPS_ASKED.labels(self._run).set(max(asked, summary.groups_asked))

    def _train(self, groups: list[Group], trajectories: list[list[Trajectory]]) -> AdapterManifest:
        """Take the step and commit it as one checkpoint."""
        trainer = self._trainer
        batch = trainer.build_batch([(group.id, own) for group, own in zip(groups, trajectories, strict=True)])
        failpoint("learner.batched")
        probes = {role: self._begin_probes(role, batch) for role in trainer.roles}
        failpoint("learner.probed")
        metrics = trainer.step(batch)
        # The lead role is the first by name, and its manifest comes last.
        parts = [self._part(role, batch, metrics[role], probes[role]) for role in reversed(trainer.roles)]
        checkpoint.commit(self._around.store, parts)
        manifests = [manifest for manifest, _ in parts]
        observe(manifests)
        self._around.tracking.committed(self._spec, manifests)
        for one in manifests:
            shown = {name: round(value, 4) for name, value in one.metrics.items()}
            where = {"run": self._run, "role": one.role, "version": one.version}
            log.info("version_committed", skipped=len(one.skipped), **where, **shown)
        return manifests[-1]

    def _begin_probes(self, role: str, batch: Batch) -> list[Begun]:
        policy = self._trainer.policy
        policy.use(role)
        tokens = choose_probes(batch.rollouts, role, policy.vocabulary, self._spec.seed)
        if not batch.rollouts and self._newest:
            last = checkpoint.read_manifest(self._around.store, self._run, role, self._newest.version)
            tokens = [probe.token_ids for probe in last.probes]
        return begin_probes(policy, tokens)

    def _part(
        self, role: str, batch: Batch, metrics: dict[str, float], probes: list[Begun]
    ) -> tuple[AdapterManifest, dict[str, bytes]]:
        """Return a role's part of the checkpoint."""
        trainer, refused = self._trainer, bool(metrics["refused"])
        files = trainer.files(role)
        manifest = AdapterManifest(
            run=self._run,
            role=role,
            version=trainer.version,
            parent=trainer.version - 1,
            files=checkpoint.digests(files),
            groups=list(batch.groups),
            trained_episodes=[] if refused else list(batch.episodes),
            skipped=batch.skipped_if(refused),
            probes=finish_probes(trainer.policy, probes),
            metrics=metrics,
            config=self._spec.algorithm.model_dump(mode="json"),
            created=time.time(),
        )
        return manifest, files

    async def _announce(self) -> None:
        """Tell the ledger of the newest checkpoint; safe to repeat."""
        training = self._around.ledger.training
        if self._newest and self._spec.algorithm.control is not Control.UNPUBLISHED:
            await training.publish(self._run, self._newest.version)
            failpoint("learner.published")
        if self._newest:
            await training.consumed(self._run, self._groups_consumed)
            failpoint("learner.consumed")


def model_folder(around: Surroundings, spec: RunSpec) -> Path:
    """Return where the run's base model is. Raises UnknownModel."""
    folder = around.models.get(spec.base_model)
    if folder is None:
        known = ", ".join(sorted(around.models))
        raise UnknownModel(f"this learner has no base model {spec.base_model!r}; it has: {known}")
    return folder


def _load(around: Surroundings, spec: RunSpec) -> tuple[Trainer, list[AdapterManifest]]:
    folder = model_folder(around, spec)
    history = checkpoint.committed(around.store, str(spec.id), spec.lead_role)
    trainer = around.make_trainer(spec, folder, around.device, around.compute)
    if history:
        newest = history[-1].version
        parts = {role: checkpoint.read_manifest(around.store, str(spec.id), role, newest) for role in trainer.roles}
        trainer.restore(newest, {role: checkpoint.read_files(around.store, one) for role, one in parts.items()})
    return trainer, history


def _is_last(summary: RunSummary) -> bool:
    """Say whether no training episode will finish any more."""
    return summary.state is not RunState.OPEN and not any(summary.counts.get(name) for name in _UNFINISHED)
