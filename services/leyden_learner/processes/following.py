"""A follower: the same training state as the leader's, by doing the same."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

import structlog

from leyden_contracts import RunSpec
from leyden_learner.batch import Batch
from leyden_learner.compute import DEFAULT, Compute
from leyden_learner.policy import UnknownModel
from leyden_learner.processes.leading import fingerprint, problem_of
from leyden_learner.processes.orders import Order, unpack_files, unpack_groups
from leyden_learner.processes.team import Team, TeammateFailed, broken_by
from leyden_learner.trainer import Trainer

log = structlog.get_logger()


class Follower:
    """Obeys the leader's orders; `models` are the folders of the base models, by name."""

    def __init__(
        self, team: Team, models: Mapping[str, Path], device: str = "auto", compute: Compute = DEFAULT
    ) -> None:
        self._team, self._models, self._device, self._compute = team, models, device, compute
        self._trainers: dict[int, Trainer] = {}
        self._batches: dict[int, Batch] = {}
        self._stopped = Event()

    def run(self) -> None:
        """Follow until the leader ends. Raises TeamBroken."""
        # The leader gets the signal, too, and may be in the middle of a step that needs this process.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopped.set())
        log.info("following", rank=self._team.rank, of=self._team.size)
        while order := self._team.next_order(self._stopped):
            self._obey(order)
        log.info("stopped", rank=self._team.rank)

    def _obey(self, order: Order) -> None:
        for trainer in order.drop:
            self._trainers.pop(trainer, None)
            self._batches.pop(trainer, None)
        if together := _TOGETHER.get(order.kind):
            with broken_by(order.kind):
                proof = together(self, order.trainer)
            self._team.agree(proof=proof)
            return
        problem = ""
        try:
            _PREPARE[order.kind](self, order)
        except Exception as error:
            problem = problem_of(error)
            log.error("order_failed", rank=self._team.rank, order=order.kind, exc_info=error)
        try:
            self._team.agree(problem)
        except TeammateFailed as failed:
            log.warning("order_dropped", rank=self._team.rank, order=order.kind, reason=str(failed))

    def _begin(self, order: Order) -> None:
        spec = RunSpec.model_validate(order.fields["spec"])
        folder = self._models.get(spec.base_model)
        if folder is None:
            raise UnknownModel(f"no base model {spec.base_model!r} here; there are: {', '.join(sorted(self._models))}")
        self._trainers[order.trainer] = Trainer(spec, folder, self._device, self._compute)

    def _restore(self, order: Order) -> None:
        self._trainers[order.trainer].restore(order.fields["version"], unpack_files(order.blobs))

    def _batch(self, order: Order) -> None:
        groups = unpack_groups(order.fields["groups"], order.blobs["trajectories"])
        self._batches[order.trainer] = self._trainers[order.trainer].build_batch(groups)

    def _step(self, number: int) -> str:
        trainer = self._trainers[number]
        trainer.step(self._batches.pop(number))
        return fingerprint(trainer)

    def _idle(self, number: int) -> str:
        self._trainers[number].policy.idle()
        return ""


_PREPARE: dict[str, Callable[[Follower, Order], None]] = {
    "begin": Follower._begin,
    "restore": Follower._restore,
    "batch": Follower._batch,
}
"""What can fail in one process without leaving another one waiting."""
_TOGETHER: dict[str, Callable[[Follower, int], str]] = {"step": Follower._step, "idle": Follower._idle}
"""What processes do with each other; they then compare what comes of it."""
