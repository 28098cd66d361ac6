"""Replies from the embedded engine, by the newest adapters that the learner published."""

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from learning.playing import Ask, Environment
from leyden_engine.adapter_files import read_adapter
from leyden_engine.job import Job, Sampling
from leyden_engine.lora import Adapter
from leyden_engine.network import load_network
from leyden_engine.scheduler import Scheduler
from leyden_learner.trainer import ADAPTER, ADAPTER_CONFIG, Trainer

_ROWS = 64
_WAITING = 100_000


class Sampler:
    """Serves version 0, the base model, until `publish` is called."""

    def __init__(self, environment: Environment) -> None:
        self._network = load_network(environment.model, _ROWS, "cpu", "float32", threads=1)
        self._text, self._max_tokens = environment.text, environment.max_tokens
        self._ends = environment.text.end_ids if environment.text else frozenset()
        self._adapters: dict[str, Adapter] = {}
        self._version = 0

    def version(self, role: str) -> int:
        """Return the policy version that answers for `role`; a frozen role stays at 0."""
        return self._version if role in self._adapters else 0

    def publish(self, trainer: Trainer) -> None:
        """Serve the trainer's version from now on, by way of the files of its checkpoint."""
        for role in trainer.roles:
            files = trainer.files(role)
            with tempfile.TemporaryDirectory() as folder:
                for name in (ADAPTER, ADAPTER_CONFIG):
                    (Path(folder) / name).write_bytes(files[name])
                self._adapters[role] = read_adapter(
                    Path(folder), f"{role}-{trainer.version}", self._network.layers, self._network.dtype,
                    self._network.device,
                )  # fmt: skip
        self._version = trainer.version

    def sample(self, asks: Sequence[Ask], seeds: Sequence[int]) -> list[Job]:
        """Return the finished job of each ask, in order. Raises what the engine's pass raised."""
        ended = threading.Semaphore(0)
        jobs = [
            Job(
                prompt=ask.prompt,
                adapter=self._adapters.get(ask.role),
                sampling=Sampling(max_tokens=self._max_tokens, seed=seed, stop_ids=self._ends),
                keep_special=True,
                done=ended.release,
            )
            for ask, seed in zip(asks, seeds, strict=True)
        ]
        # Texts are looked at for stop strings alone, which nobody asks for here.
        scheduler = Scheduler(self._network, self._text, _ROWS, kept=0, waiting=_WAITING)  # type: ignore[arg-type]
        # All jobs before the start: batches, and so the last digits, are then the same every time.
        for job in jobs:
            scheduler.submit(job)
        scheduler.start()
        for _ in jobs:
            ended.acquire()
        scheduler.stop()
        for job in jobs:
            if job.error:
                raise job.error
        return jobs
