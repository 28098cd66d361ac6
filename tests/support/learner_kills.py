"""Learner processes that die where they are told to, on a run whose groups have all been played.

They are forked from a server that has imported torch, so that a start costs a fraction of a second; each is a process
of its own, and its death is SIGKILL.
"""

import asyncio
import hashlib
import json
import math
import multiprocessing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from leyden_contracts import RunSpec, Trajectory
from leyden_ledger import Ledger, RunState
from leyden_runtime import failpoints
from leyden_storage import ObjectStore, open_store
from support.learning import RUN
from support.playing import accept, play, played
from support.servers import S3_KEY, S3_SECRET

REWARDS = ((1, 0, 0, 0), (0, 1, 1, 0), (0, 0, 1, 0), (1, 1, 0, 1), (0, 1, 0, 0), (1, 0, 0, 1))
ROLES = ("checker", "writer")

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["leyden_learner.loop"])


@dataclass(frozen=True)
class Scene:
    """Where a learner works."""

    redis_url: str
    store_url: str
    model: Path
    infinite: int = 0
    """The version whose loss is infinite; 0: none is."""

    def store(self) -> ObjectStore:
        """Open the object store."""
        return open_store(self.store_url, S3_KEY, S3_SECRET)


def train(scene: Scene, armed: str = "") -> int:
    """Let a learner train until its run is finished, or it dies at the failpoints `armed`; return its exit code."""
    process = _forks.Process(target=_learner, args=(scene, armed))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"the learner neither died at {armed or 'nothing'} nor finished its run")
    assert process.exitcode is not None
    return process.exitcode


def _learner(scene: Scene, armed: str) -> None:
    import torch

    torch.set_num_threads(1)
    failpoints._armed = failpoints.parse(armed)
    _plant(scene.infinite)
    asyncio.run(_until_finished(scene))


def _plant(version: int) -> None:
    """Let the loss of the step to `version` be infinite, with gradients as ever."""
    from leyden_learner.trainer import Trainer

    step = Trainer.step

    def planted(trainer: Any, batch: Any) -> Any:
        share = trainer.objective.share
        added = math.inf if trainer.version + 1 == version else 0.0
        trainer.objective.share = lambda *args: share(*args) + added
        try:
            return step(trainer, batch)
        finally:
            trainer.objective.share = share

    Trainer.step = planted


async def _until_finished(scene: Scene) -> None:
    from leyden_learner.loop import Learner
    from leyden_learner.run_training import Surroundings

    ledger, stop = Ledger.connect(scene.redis_url), asyncio.Event()
    around = Surroundings(ledger, scene.store(), {"tiny": scene.model}, "cpu")
    learner = asyncio.create_task(Learner(around, 0.02, RUN).run(stop))
    while (await ledger.runs.summary(RUN)).state is not RunState.FINISHED:
        await asyncio.sleep(0.02)
    stop.set()
    await learner
    await ledger.aclose()


async def play_run(ledger: Ledger, scene: Scene, spec: RunSpec, steps: int, broken: str = "") -> None:
    """Play the groups of `steps` steps into an empty ledger and store, and seal the run.

    Each episode calls every trained role. In the group `broken` no logprob is a number.
    """
    store, groups = scene.store(), [f"g{i}" for i in range(steps * spec.algorithm.groups_per_step)]

    def make(run: str, group: str, *rest: float) -> Trajectory:
        trajectory = played(run, group, *rest)
        calls = []
        for call, role in zip(trajectory.transitions, cycle(spec.trained_roles), strict=False):
            logprobs = np.frombuffer(call.response_logprobs, "<f4")
            if group == broken:
                logprobs = np.full_like(logprobs, np.nan)
            calls.append(call.model_copy(update={"role": role, "response_logprobs": logprobs.tobytes()}))
        return trajectory.model_copy(update={"transitions": tuple(calls)})

    await ledger.redis.flushall()
    await accept(ledger, spec, groups, store)
    for group, rewards in zip(groups, cycle(REWARDS), strict=False):
        await play(ledger, store, group, rewards, make=make)
    await ledger.runs.seal(RUN)


def written(scene: Scene) -> dict[str, object]:
    """Return the sha256 of every file of every version, and the manifests without what a clock says."""
    store, found = scene.store(), {}
    for name in store.list(f"runs/{RUN}/adapters/"):
        data = store.get(name)
        found[name] = _timeless(data) if name.endswith("manifest.json") else hashlib.sha256(data).hexdigest()
    return found


def _timeless(manifest: bytes) -> dict[str, object]:
    fields = json.loads(manifest)
    del fields["created"], fields["metrics"]["seconds"]
    return fields
