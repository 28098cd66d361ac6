"""kill -9 of a learner in a start: it is made again, whole, and to the same weights.

The processes that die are forks of this one, which has done the slow imports.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from leyden_contracts import RunSpec, StoredStart
from leyden_learner.checkpoint import committed
from leyden_learner.run_training import Progress, Surroundings
from leyden_learner.start import resume
from leyden_ledger import Ledger, RunState
from leyden_ledger.check import check_run
from leyden_runtime import failpoints
from leyden_storage import LocalStore
from leyden_storage.keys import run_key
from leyden_storage.starts import write_start
from support.learning import make_spec
from support.tiny_model import make_model

RUN, LINES = "run-start", b"".join(b'{"prompt": "%d + 1 =", "completion": " %d"}\n' % (n, n + 1) for n in range(4))


class Learner:
    """Learns in one store, with a ledger of its own for each process."""

    def __init__(self, redis_url: str, folder: Path, model: Path) -> None:
        self._redis_url, self._model, self.store = redis_url, model, LocalStore(folder)

    async def enter(self) -> None:
        """Enter a run that is sealed, and so ends with its start."""
        start = {"kind": "sft", "batch_size": 1}
        spec = RunSpec.model_validate(make_spec().model_dump(mode="json") | {"id": RUN, "start": start})
        self.store.put(run_key(RUN), spec.model_dump_json().encode())
        write_start(self.store, RUN, StoredStart(digest="d" * 64, part_lines=[4], created=0.0), [LINES])
        ledger = Ledger.connect(self._redis_url)
        await ledger.redis.flushall()
        await ledger.runs.create(spec)
        await ledger.runs.seal(RUN)
        await ledger.aclose()

    async def learn(self) -> None:
        """Train the run to its end, and look for what is wrong."""
        ledger = Ledger.connect(self._redis_url)
        training = await resume(Surroundings(ledger, self.store, {"tiny": self._model}, "cpu"), RUN)
        while await training.advance() is Progress.TRAINED:
            pass
        assert (await ledger.runs.summary(RUN)).state is RunState.FINISHED
        assert await check_run(ledger, self.store, RUN) == []
        await ledger.aclose()

    def die(self, point: str) -> None:
        """Learn in a process that is killed at `point`."""
        child = os.fork()
        if child == 0:
            failpoints._armed = failpoints.parse(point)
            try:
                asyncio.run(self.learn())
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    async def published(self) -> int:
        """Return the newest version that the ledger knows."""
        ledger = Ledger.connect(self._redis_url)
        summary = await ledger.runs.summary(RUN)
        await ledger.aclose()
        return summary.version_published


@pytest.mark.timeout(300)
def test_a_start_is_whole_or_not_there(redis_url: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", hidden=32)
    straight, killed = (Learner(redis_url, tmp_path / name, model) for name in ("straight", "killed"))
    asyncio.run(straight.enter())
    asyncio.run(straight.learn())

    asyncio.run(killed.enter())
    versions = []
    for point in ("learner.start_stepped=kill@3", "learner.written=kill", "learner.start_committed=kill"):
        killed.die(point)
        versions.append((len(committed(killed.store, RUN, "policy")), asyncio.run(killed.published())))
    asyncio.run(killed.learn())

    assert versions == [(0, 0), (0, 0), (1, 0)]
    assert asyncio.run(killed.published()) == 1
    ((one,), (other,)) = (committed(learner.store, RUN, "policy") for learner in (straight, killed))
    assert (one.files, one.probes, one.start) == (other.files, other.probes, other.start)
