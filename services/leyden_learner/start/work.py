"""All that a start does between its first look at the data and version 1."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import structlog
from safetensors.torch import load

from leyden_contracts import AdapterManifest, AdapterStart, DpoStart, RunSpec, SftStart, StartOrigin
from leyden_learner import checkpoint
from leyden_learner.compute import Sharding
from leyden_learner.run_training import Surroundings, model_folder
from leyden_learner.start.data import fitted, units_of_run, uploaded_units
from leyden_learner.start.errors import StartRefused
from leyden_learner.start.lesson import Lesson
from leyden_learner.start.version import FirstVersion, probe_tokens
from leyden_learner.trainer import ADAPTER, Trainer
from leyden_storage import ObjectStore
from leyden_storage.starts import read_start

log = structlog.get_logger()


class Work:
    """Version 1 begun, and the lessons that are left until it can be committed."""

    def __init__(
        self, version: FirstVersion, origins: Mapping[str, StartOrigin], lessons: Mapping[str, Lesson] | None = None
    ) -> None:
        self._version, self._origins, self._lessons = version, origins, lessons or {}

    def step(self) -> bool:
        """Take one optimizer step; False: there is none left."""
        lesson = next((one for one in self._lessons.values() if not one.done), None)
        if lesson:
            lesson.step()
        return lesson is not None

    def commit(self, store: ObjectStore) -> list[AdapterManifest]:
        """Make version 1 exist; return the manifests of its roles. Raises CheckpointTaken, StoreError."""
        metrics = {role: lesson.metrics() for role, lesson in self._lessons.items()}
        manifests = self._version.commit(store, self._origins, metrics)
        for made in manifests:
            shown = {name: round(value, 4) for name, value in made.metrics.items()}
            log.info("start_committed", run=made.run, role=made.role, kind=self._origins[made.role].kind, **shown)
        return manifests


def begin_work(around: Surroundings, spec: RunSpec) -> Work | None:
    """Read everything that the start needs; None: its data is not there yet.

    Raises StartRefused, UnknownModel, CheckpointDamaged, StoreError.
    """
    folder, start = model_folder(around, spec), spec.start
    if isinstance(start, SftStart | DpoStart):
        return _learning(around, spec, start, folder)
    assert start is not None
    return _adopting(around.store, start, _trainer(around, spec, folder))


def _trainer(around: Surroundings, spec: RunSpec, folder: Path) -> Trainer:
    # Not `around.make_trainer`, and the base whole: a start is computed by one process, and the others do not follow.
    return Trainer(spec, folder, around.device, replace(around.compute, sharding=Sharding.NONE))


def _learning(around: Surroundings, spec: RunSpec, start: SftStart | DpoStart, folder: Path) -> Work | None:
    stored = None if start.run else read_start(around.store, str(spec.id))
    if not (start.run or stored):
        return None
    trainer = _trainer(around, spec, folder)
    vocabulary = trainer.policy.vocabulary
    if stored:
        units = uploaded_units(around.store, spec, start.kind, stored, folder)
    else:
        units = units_of_run(around.store, spec, start, folder, vocabulary)
    units = fitted(units, start, folder)
    own = {role: units.of(role) for role in trainer.roles}
    version = FirstVersion(trainer, {role: probe_tokens(one, vocabulary, spec.seed) for role, one in own.items()})
    digest = stored.digest if stored else None
    origin = StartOrigin(kind=start.kind, run=start.run, digest=digest, dropped=dict(units.dropped))
    origins = {role: origin.model_copy(update={"samples": len(one)}) for role, one in own.items()}
    return Work(version, origins, {role: Lesson(trainer, role, one, start) for role, one in own.items()})


def _adopting(store: ObjectStore, start: AdapterStart, trainer: Trainer) -> Work:
    """Take over the source's adapters."""
    made = {role: _manifest(store, start, role) for role in trainer.roles}
    version = FirstVersion(trainer, {role: [probe.token_ids for probe in one.probes] for role, one in made.items()})
    for role, manifest in made.items():
        trainer.policy.use(role)
        try:
            trainer.policy.load_adapter_state(load(checkpoint.read_files(store, manifest)[ADAPTER]))
        except ValueError as error:
            raise StartRefused(f"version {start.version} of run {start.run!r}: {error}") from error
    origin = StartOrigin(kind="adapter", run=start.run, version=start.version)
    return Work(version, dict.fromkeys(trainer.roles, origin))


def _manifest(store: ObjectStore, start: AdapterStart, role: str) -> AdapterManifest:
    return checkpoint.read_manifest(store, start.run, start.role or role, start.version)
