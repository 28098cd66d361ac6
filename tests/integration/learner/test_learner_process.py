"""A real learner process: several runs, kill -9, a clean stop, metrics, wrong settings."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leyden_contracts import RunSpec
from leyden_learner.checkpoint import committed
from leyden_ledger import Ledger, RunState
from leyden_storage import LocalStore
from support.learning import RUN, make_spec
from support.playing import accept, play


def renamed(spec: RunSpec, **update: object) -> RunSpec:
    return spec.model_copy(update=update)


@contextmanager
def learner(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen]:
    with log.open("ab") as output:
        child = subprocess.Popen([sys.executable, "-m", "leyden_learner"], env=os.environ | environment, stderr=output)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


async def until(ready: Callable[[], Awaitable[bool]], child: subprocess.Popen, seconds: float = 120) -> None:
    for _ in range(int(seconds / 0.1)):
        assert child.poll() is None, "the learner died"
        if await ready():
            return
        await asyncio.sleep(0.1)
    pytest.fail("it did not come in time")


def published(ledger: Ledger, version: int, run: str = RUN) -> Callable[[], Awaitable[bool]]:
    async def ready() -> bool:
        return (await ledger.runs.summary(run)).version_published >= version

    return ready


def events(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_runs_are_trained_side_by_side_and_one_without_its_model_stops_none(
    ledger: Ledger, store: LocalStore, environment: dict[str, str], tmp_path: Path
):
    spec = make_spec(max_staleness=1000, groups_per_step=1)
    unknown, second = renamed(spec, id="run-a", base_model="unheard-of"), renamed(spec, id="run-z")
    for one in (spec, unknown, second):
        await accept(ledger, one, "ab")
        for group in "ab":
            await play(ledger, store, group, (1, 0, 0, 1), run=str(one.id))
        await ledger.runs.seal(str(one.id))

    with learner(environment, tmp_path / "log") as child:
        await until(published(ledger, 2), child)
        await until(published(ledger, 2, "run-z"), child)
        with urllib.request.urlopen(f"http://127.0.0.1:{environment['LEYDEN_LEARNER_PORT']}/metrics") as answer:
            metrics = answer.read().decode()
        child.terminate()
        assert child.wait(20) == 0

    assert (await ledger.runs.summary(RUN)).state is RunState.FINISHED
    (refused,) = [event for event in events(tmp_path / "log") if event["event"] == "run_cannot_be_trained"]
    assert (refused["run"], refused["level"]) == ("run-a", "error")
    assert "unheard-of" in refused["reason"]
    assert "tiny" in refused["reason"]
    assert f'leyden_learner_reward_mean{{role="policy",run="{RUN}"}} 0.5' in metrics
    assert 'leyden_learner_version{run="run-z"} 2.0' in metrics
    assert f'leyden_learner_trained_tokens_total{{role="policy",run="{RUN}"}} 24.0' in metrics
    assert "leyden_learner_step_seconds_count 4.0" in metrics
    assert 'leyden_learner_failures_total{kind="UnknownModel",run="run-a"} 1.0' in metrics


async def test_kill_9_between_steps_loses_and_doubles_nothing(
    ledger: Ledger, store: LocalStore, environment: dict[str, str], tmp_path: Path
):
    groups = [f"g{i}" for i in range(12)]
    await accept(ledger, make_spec(max_staleness=1000, groups_per_step=1), groups)
    await ledger.runs.seal(RUN)
    for group in groups:
        await play(ledger, store, group, (1, 0, 0, 1))

    for version in (2, 12):
        with learner(environment | {"LEYDEN_LEARNER_RUN": RUN}, tmp_path / "log") as child:
            await until(published(ledger, version), child)

    manifests = committed(store, RUN, "policy")
    assert [manifest.version for manifest in manifests] == list(range(1, 13))
    assert [group for manifest in manifests for group in manifest.groups] == groups


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEYDEN_LEARNER_MODELS", ""),
        ("LEYDEN_LEARNER_MODELS", "only-a-name"),
        ("LEYDEN_LEARNER_THREADS", "none"),
        ("LEYDEN_LEARNER_DEVICE", "abacus"),
        ("LEYDEN_LEARNER_MODEL_S", "a typo"),
        ("LEYDEN_LEARNER_TRACKER", "notebook"),
        ("LEYDEN_LEARNER_SHARDING", "fsdp2"),
        ("LEYDEN_STORE_URL", "ftp://nowhere"),
    ],
)
def test_wrong_settings_are_named_and_exit_with_2(environment: dict[str, str], name: str, value: str):
    child = subprocess.run(
        [sys.executable, "-m", "leyden_learner"],
        env=os.environ | environment | {name: value},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert child.returncode == 2
    assert name in child.stderr
