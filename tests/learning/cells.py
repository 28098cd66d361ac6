"""One training run: version after version, with what the agent can do before and after."""

import hashlib
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import torch

from learning.environments import ENVIRONMENTS
from learning.grid import STUDIES, Cell, Strategy, Study
from learning.playing import Environment, Played, play
from learning.recording import RUN, record
from learning.results import Result
from learning.sampler import Sampler
from leyden_contracts import Control, RunSpec, Trajectory
from leyden_learner.trainer import Trainer

Groups = list[tuple[str, list[Trajectory]]]


def run_cell(cell: Cell) -> Result:
    """Train and measure one cell; the same cell gives the same numbers."""
    study = STUDIES[cell.study]
    return run(study, study.strategy(cell.strategy), cell.seed)


def run(study: Study, strategy: Strategy, seed: int) -> Result:
    """Train `study` by `strategy`, from this seed."""
    torch.set_num_threads(1)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        environment = ENVIRONMENTS[study.environment](seed, Path(folder))
        lab = _Lab(make_spec(study, strategy, seed), environment, strategy.signals)
        before = lab.evaluate(study.held_out, "before")
        curve = [lab.step(number) for number in range(study.steps)]
        after = lab.evaluate(study.held_out, "after")
    return Result(
        study=study.name,
        strategy=strategy.name,
        seed=seed,
        settings=settings(study, strategy, seed),
        before=before,
        after=after,
        curve=curve,
        cpu_s=round(time.process_time() - started, 1),
    )


def make_spec(study: Study, strategy: Strategy, seed: int) -> RunSpec:
    """Return the run's specification, validated as the task API would. Raises ValueError."""
    where = f"learning.environments.{study.environment}:program"
    spec: dict[str, Any] = {
        "id": RUN,
        "base_model": "lab",
        "agent": where,
        "grader": where,
        "group_size": study.group_size,
        "seed": seed,
        "roles": {role: {"trained": role not in strategy.frozen} for role in study.roles},
        "algorithm": study.algorithm | strategy.algorithm,
    }
    return RunSpec.model_validate(spec)


def settings(study: Study, strategy: Strategy, seed: int) -> str:
    """Return a digest of what a cell's numbers follow from, the code left aside."""
    spec = make_spec(study, strategy, seed).model_dump_json()
    rest = (study.environment, study.steps, study.held_out, strategy.signals)
    return hashlib.sha256(f"{spec} {rest}".encode()).hexdigest()[:12]


class _Lab:
    """The learner and the engine of one run, with the agent between them."""

    def __init__(self, spec: RunSpec, environment: Environment, signals: bool) -> None:
        self._spec, self._environment, self._signals = spec, environment, signals
        self._trainer = Trainer(spec, environment.model, device="cpu")
        self._sampler = Sampler(environment)
        order = Random(f"order-{spec.seed}").sample(environment.train, len(environment.train))
        self._tasks = cycle(order)

    def step(self, number: int) -> float:
        """Play a step's groups, train on them, publish; return the mean score of what was played."""
        tasks = list(islice(self._tasks, self._spec.algorithm.groups_per_step))
        size = self._spec.group_size
        played = self._play([task for task in tasks for _ in range(size)], f"step-{number}")
        trainer = self._trainer
        trainer.step(trainer.build_batch(self._groups(played, number)))
        if self._spec.algorithm.control is not Control.UNPUBLISHED:
            self._sampler.publish(trainer)
        return _mean_score(played)

    def evaluate(self, episodes: int, name: str) -> float:
        """Return the mean score on held-out tasks, which come in turn."""
        return _mean_score(self._play(list(islice(cycle(self._environment.held_out), episodes)), name))

    def _play(self, tasks: Sequence[Any], name: str) -> list[Played]:
        # What the world and the sampler draw depends on the seed, not on the strategy: cells of a seed are pairs.
        rng = Random(f"{name}-{self._spec.seed}")
        programs = [self._environment.program(task, Random(rng.getrandbits(48))) for task in tasks]
        return play(programs, self._sampler, rng)

    def _groups(self, played: Sequence[Played], step: int) -> Groups:
        size, groups = self._spec.group_size, []
        for start in range(0, len(played), size):
            name = f"g{step}-{start // size}"
            own = enumerate(played[start : start + size])
            groups.append((name, [record(one, name, i, self._sampler.version, self._signals) for i, one in own]))
        return groups


def _mean_score(played: Sequence[Played]) -> float:
    return sum(one.outcome.score for one in played) / len(played)
