"""kill -9 of a real learner process in a start: it is made again, whole, and to the same weights."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leyden_contracts import RunSpec, StoredStart
from leyden_learner.checkpoint import committed
from leyden_ledger import Ledger, RunState
from leyden_ledger.check import check_run
from leyden_storage import LocalStore
from leyden_storage.keys import run_key
from leyden_storage.starts import write_start
from support.learning import make_spec
from support.tiny_model import make_model

RUN, LINES = "run-start", b"".join(b'{"prompt": "%d + 1 =", "completion": " %d"}\n' % (n, n + 1) for n in range(4))


async def enter(ledger: Ledger, store: LocalStore) -> None:
    """Enter a run that is sealed, and so ends with its start."""
    start = {"kind": "sft", "batch_size": 1}
    spec = RunSpec.model_validate(make_spec().model_dump(mode="json") | {"id": RUN, "start": start})
    store.put(run_key(RUN), spec.model_dump_json().encode())
    await ledger.runs.create(spec)
    await ledger.runs.seal(RUN)
    write_start(store, RUN, StoredStart(digest="d" * 64, part_lines=[4], created=0.0), [LINES])


async def learn(environment: dict[str, str], ledger: Ledger, failpoints: str = "") -> int:
    """Run a learner until the run has ended or the learner has died; return its exit code."""
    with subprocess.Popen(
        [sys.executable, "-m", "leyden_learner"], env=os.environ | environment | {"LEYDEN_FAILPOINTS": failpoints}
    ) as child:
        for _ in range(2400):
            if child.poll() is not None:
                return child.returncode
            if (await ledger.runs.summary(RUN)).state is RunState.FINISHED:
                child.terminate()
                return child.wait(60)
            await asyncio.sleep(0.05)
        child.kill()
    pytest.fail("it did not end in time")


async def test_a_start_is_whole_or_not_there(ledger: Ledger, redis_url: str, tmp_path: Path, free_port: int) -> None:
    made = []
    model = make_model(tmp_path / "model", hidden=32)
    for name, points in (
        ("straight", []),
        ("killed", ["learner.start_stepped=kill@3", "learner.start_committed=kill"]),
    ):
        await ledger.redis.flushall()
        store = LocalStore(tmp_path / name)
        await enter(ledger, store)
        environment = {
            "LEYDEN_REDIS_URL": redis_url,
            "LEYDEN_STORE_URL": f"file://{tmp_path / name}",
            "LEYDEN_LEARNER_PORT": str(free_port),
            "LEYDEN_LEARNER_MODELS": f"tiny={model}",
            "LEYDEN_LEARNER_DEVICE": "cpu",
            "LEYDEN_LEARNER_POLL_S": "0.05",
            "OMP_NUM_THREADS": "1",
        }
        for number, point in enumerate(points):
            assert await learn(environment, ledger, point) == -9
            assert len(committed(store, RUN, "policy")) == number
            assert (await ledger.runs.summary(RUN)).version_published == 0
        assert await learn(environment, ledger) == 0
        made.append(committed(store, RUN, "policy"))
        assert (await ledger.runs.summary(RUN)).version_published == 1
        assert await check_run(ledger, store, RUN) == []

    ((straight,), (killed,)) = made
    assert (killed.files, killed.probes, killed.start) == (straight.files, straight.probes, straight.start)
