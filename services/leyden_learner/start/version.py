"""Version 1 of a run with a start: probes, files and manifests of every role, in one commit."""

import time
from collections.abc import Mapping, Sequence

from leyden_contracts import AdapterManifest, StartOrigin
from leyden_learner import checkpoint
from leyden_learner.metrics import observe
from leyden_learner.probes import COUNT, LENGTH, Begun, begin_probes, choose_probes, finish_probes
from leyden_learner.start.lesson import Measures
from leyden_learner.start.units import Unit
from leyden_learner.trainer import Trainer
from leyden_storage import ObjectStore

FIRST = 1


def probe_tokens(units: Sequence[Unit], vocabulary: int, seed: int) -> list[list[int]]:
    """Return the ends of what is learned, or random tokens if that is little."""
    chosen: list[list[int]] = []
    for unit in units:
        tokens = unit.samples[-1].tokens[-LENGTH:].tolist()
        if len(chosen) < COUNT and len(tokens) > 1 and tokens not in chosen:
            chosen.append(tokens)
    return chosen + choose_probes([], "", vocabulary, seed)[len(chosen) :]


class FirstVersion:
    """Begun before the policy has learned anything, committed when it has learned all."""

    def __init__(self, trainer: Trainer, tokens: Mapping[str, list[list[int]]]) -> None:
        """`tokens`: the probes of each role."""
        self._trainer = trainer
        self._begun: dict[str, list[Begun]] = {}
        for role in trainer.roles:
            trainer.policy.use(role)
            self._begun[role] = begin_probes(trainer.policy, tokens[role])

    def commit(
        self, store: ObjectStore, origins: Mapping[str, StartOrigin], metrics: Mapping[str, Measures]
    ) -> list[AdapterManifest]:
        """Make version 1 exist; return the manifests of its roles. Raises CheckpointTaken, StoreError."""
        # The lead role is the first by name, and its manifest comes last.
        roles = list(reversed(self._trainer.roles))
        parts = [self._part(role, origins[role], metrics.get(role, {})) for role in roles]
        checkpoint.commit(store, parts)
        manifests = [manifest for manifest, _ in parts]
        observe(manifests)
        return manifests

    def _part(self, role: str, origin: StartOrigin, metrics: Measures) -> tuple[AdapterManifest, dict[str, bytes]]:
        trainer, spec = self._trainer, self._trainer.spec
        files = trainer.files(role)
        manifest = AdapterManifest(
            run=str(spec.id),
            role=role,
            version=FIRST,
            parent=FIRST - 1,
            files=checkpoint.digests(files),
            groups=[],
            trained_episodes=[],
            skipped={},
            probes=finish_probes(trainer.policy, self._begun[role]),
            metrics={"tokens": 0.0, "seconds": 0.0} | metrics,
            config=spec.start.model_dump(mode="json") if spec.start else {},
            start=origin,
            created=time.time(),
        )
        return manifest, files
