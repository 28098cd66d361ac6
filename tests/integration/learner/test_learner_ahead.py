"""While a step is computed, the trajectories of the next one are read; a failure of that harms nothing."""

import threading
from pathlib import Path

import pytest

from leyden_learner.checkpoint import committed
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_learner.trainer import Trainer
from leyden_ledger import Ledger
from leyden_storage import LocalStore, StoreError
from support.learning import RUN, make_spec
from support.playing import accept, play

REWARDS = (1, 0, 0, 1)
PATIENCE_S = 60


class Watched(LocalStore):
    """Tells when more trajectories are read than those of the first group, and may fail then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fails = False
        self.reads = 0
        self.read_ahead = threading.Event()

    def get(self, key: str) -> bytes:
        # A batch for each episode.
        self.reads += "/trajectories/" in key
        if self.reads > len(REWARDS):
            self.read_ahead.set()
            if self.fails:
                raise StoreError("down")
        return super().get(key)


@pytest.fixture
async def around(ledger: Ledger, tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    store = Watched(tmp_path / "store")
    plain = Trainer.step

    def step(trainer: Trainer, batch: object) -> object:
        if trainer.version == 0:
            assert store.read_ahead.wait(PATIENCE_S), "nothing was read during the step"
            store.fails = False
        return plain(trainer, batch)

    monkeypatch.setattr(Trainer, "step", step)
    await accept(ledger, make_spec(groups_per_step=1, max_staleness=1000), "ab")
    for group in "ab":
        await play(ledger, store, group, REWARDS)
    return Surroundings(ledger, store, {"tiny": tiny_llama}, "cpu")


async def test_the_next_steps_trajectories_are_read_during_a_step(around: Surroundings):
    training = await RunTraining.resume(around, RUN)

    assert await training.advance() is Progress.TRAINED
    assert await training.advance() is Progress.TRAINED

    assert around.store.read_ahead.is_set()
    assert [one.groups for one in committed(around.store, RUN, "policy")] == [["a"], ["b"]]


async def test_a_store_that_fails_while_it_is_read_ahead_spoils_no_step(around: Surroundings):
    around.store.fails = True
    training = await RunTraining.resume(around, RUN)

    progress = [await training.advance() for _ in range(2)]

    assert progress == [Progress.TRAINED] * 2
    assert all(len(one.trained_episodes) == 4 for one in committed(around.store, RUN, "policy"))
