"""The leader's trainer: what changes its state is done by every process."""

import hashlib
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from leyden_contracts import RunSpec, Trajectory
from leyden_learner.batch import Batch
from leyden_learner.compute import DEFAULT, Compute
from leyden_learner.processes.orders import pack_files, pack_groups
from leyden_learner.processes.team import Team, TeammateFailed, broken_by
from leyden_learner.trainer import ADAPTER, Trainer


class LeadingTrainer(Trainer):
    """A trainer whose every change of state the other processes repeat.

    Raises TeammateFailed where another process cannot, and TeamBroken where they can no longer go on together.
    """

    def __init__(
        self, team: Team, spec: RunSpec, folder: Path, device: str = "auto", compute: Compute = DEFAULT
    ) -> None:
        self._team = team
        self._number = team.number_trainer()
        weakref.finalize(self, team.forget, self._number)
        with self._together("begin", {"spec": spec.model_dump(mode="json")}):
            super().__init__(spec, folder, device, compute)
            if self.policy.sharded:
                self.policy.alone = self._alone

    def build_batch(self, groups: Sequence[tuple[str, Sequence[Trajectory]]]) -> Batch:
        """Return what the next step trains on; the others now have it, too."""
        counts, body = pack_groups(groups)
        with self._together("batch", {"groups": counts}, {"trajectories": body}):
            return super().build_batch(groups)

    def step(self, batch: Batch) -> dict[str, dict[str, float]]:
        """Make the next version, as every process does. `batch` is what `build_batch` returned last."""
        self._tell("step", {}, {})
        # What fails in the middle of a step leaves the others waiting for this process's part of it.
        with broken_by("a step"):
            metrics = super().step(batch)
            proof = fingerprint(self)
        self._team.agree(proof=proof)
        return metrics

    def restore(self, version: int, files: dict[str, dict[str, bytes]]) -> None:
        """Go back to a checkpoint, in every process."""
        with self._together("restore", {"version": version}, pack_files(files)):
            super().restore(version, files)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let the others make an idle pass meanwhile."""
        self._tell("idle", {}, {})
        with broken_by("a pass"):
            yield
        self._team.agree()

    def _tell(self, kind: str, fields: dict[str, Any], blobs: dict[str, bytes]) -> None:
        self._team.tell(kind, self._number, fields, blobs)

    @contextmanager
    def _together(self, kind: str, fields: dict[str, Any], blobs: dict[str, bytes] | None = None) -> Iterator[None]:
        """Do here what the others are told; nothing inside may wait for them."""
        self._tell(kind, fields, blobs or {})
        try:
            yield
        except Exception as error:
            self._hear(problem_of(error))
            raise
        self._team.agree()

    def _hear(self, problem: str) -> None:
        # The others' problems are most likely the same one; what is raised here says it best.
        with suppress(TeammateFailed):
            self._team.agree(problem)


def problem_of(error: Exception) -> str:
    """Return an error in a line."""
    return f"{type(error).__name__}: {error}"


def fingerprint(trainer: Trainer) -> str:
    """Return the sha256 of all roles' weights, in hex."""
    found = hashlib.sha256()
    for role in trainer.roles:
        found.update(trainer.files(role)[ADAPTER])
    return found.hexdigest()
