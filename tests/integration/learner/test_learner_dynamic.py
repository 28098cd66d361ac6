"""Dynamic sampling against a real ledger and store: a third of the tasks never gives a signal."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from leyden_contracts import AdapterManifest, RunSpec, StoredUpload, Task, TaskInput, TaskUpload, group_id
from leyden_contracts.task_line import task_line
from leyden_learner.checkpoint import committed
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_ledger import Ledger, NewGroup, NewUpload, RunState
from leyden_ledger.check import check_run
from leyden_ledger.recovery import recover
from leyden_ledger.store import key
from leyden_storage import LocalStore
from leyden_storage.keys import run_key, sealed_key, task_part_key, upload_key
from leyden_storage.uploads import UploadReader, part_folder
from support.learning import RUN, make_spec
from support.playing import play

BATCH = "b" * 24
TASKS = 8
LEARNABLE, SILENT = (1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0)
CHOSEN = {"dynamic": True, "most_groups_per_step": 5}


async def begin(around: Surroundings, **algorithm: object) -> list[str]:
    """Enter a sealed run and its tasks, in the store as well; return its groups."""
    ledger, store = around.ledger, around.store
    spec = make_spec(selection=CHOSEN, **algorithm)
    store.create(run_key(RUN), spec.model_dump_json().encode())
    store.create(sealed_key(RUN), b"{}")
    await ledger.runs.create(spec)
    asked = TaskUpload(purpose="train", samples=4)
    upload = StoredUpload(batch=BATCH, asked=asked, digest="d" * 64, part_lines=[TASKS], created=1.0)
    lines = b"".join(task_line({"input": number}) + b"\n" for number in range(TASKS))
    store.put(task_part_key(RUN, part_folder(upload), 0), lines)
    store.put(upload_key(RUN, BATCH), upload.model_dump_json().encode())
    await ledger.uploads.register(RUN, NewUpload(BATCH, upload.digest, TASKS, 4, "train"))
    await enter(ledger, store)
    await ledger.runs.seal(RUN)
    return [group_id(Task.of(TaskInput(input=number)).id, BATCH, number) for number in range(TASKS)]


async def enter(ledger: Ledger, store: LocalStore) -> None:
    """Enter what of the upload is not in the ledger yet, as the task API does."""
    start = await ledger.uploads.entered(RUN, BATCH)
    tasks = UploadReader(store, RUN, BATCH).tasks(start, TASKS - start)
    groups = [NewGroup(group_id(task.id, BATCH, task.number), task.id, task.ref) for task in tasks]
    await ledger.uploads.enter(RUN, BATCH, start, groups)


async def play_released(around: Surroundings) -> None:
    """Let everything run that may, on the newest version that is ready, every third group without a signal."""
    ledger = around.ledger
    await ledger.episodes.release(RUN)
    ready = (await ledger.runs.summary(RUN)).version_ready
    due = await ledger.redis.zrange(key(RUN, "due"), 0, -1)
    for group in sorted({episode.rpartition(".")[0] for episode in due}, key=number):
        await play(ledger, around.store, group, LEARNABLE if number(group) % 3 else SILENT, version=ready)


def number(group: str) -> int:
    return int(group.rpartition("-")[2])


async def train(around: Surroundings, killed: bool = False) -> list[AdapterManifest]:
    """Play and train to the end; `killed`: nothing outlives a look of the learner."""
    training = await RunTraining.resume(around, RUN)
    for _ in range(100):
        await play_released(around)
        if killed:
            training = await RunTraining.resume(around, RUN)
        progress = await training.advance()
        if progress is Progress.FINISHED:
            return committed(around.store, RUN, "policy")
        if progress is Progress.TRAINED:
            await around.ledger.replicas.mark_ready(RUN, (await around.ledger.runs.summary(RUN)).version_published)
    pytest.fail("it did not come to an end")


async def found_sound(around: Surroundings, manifests: list[AdapterManifest], groups: list[str]) -> None:
    """Say that every group was consumed once, and every step but the last was full, or as long as it may be."""
    assert sorted((group for one in manifests for group in one.groups), key=number) == groups
    for one in manifests:
        assert one.skipped == {group: "equal_rewards" for group in one.groups if number(group) % 3 == 0}
    assert all(len(one.groups) - len(one.skipped) == 2 for one in manifests[:-1])
    assert await check_run(around.ledger, around.store, RUN) == []
    summary = await around.ledger.runs.summary(RUN)
    assert (summary.groups_consumed, summary.state) == (TASKS, RunState.FINISHED)


@pytest.fixture
def around(ledger: Ledger, store: LocalStore, tiny_llama: Path) -> Surroundings:
    return Surroundings(ledger, store, {"tiny": tiny_llama}, "cpu")


@pytest.mark.parametrize("staleness", [0, 1])
async def test_each_step_has_its_groups_with_a_signal_and_waits_for_no_others(around: Surroundings, staleness: int):
    groups = await begin(around, max_staleness=staleness)

    manifests = await train(around)

    await found_sound(around, manifests, groups)
    assert len(manifests) == 3, "five of the groups have a signal"
    summary = await around.ledger.runs.summary(RUN)
    assert summary.groups_asked == sum(len(one.skipped) for one in manifests) == 3
    first = manifests[0]
    assert (first.metrics["groups"], first.metrics["signal_share"]) == (3, pytest.approx(2 / 3))
    if not staleness:
        assert all(one.metrics["staleness_mean"] == 0 for one in manifests)


async def test_a_learner_that_dies_between_all_its_looks_makes_the_same_weights(around: Surroundings, tmp_path: Path):
    results = []
    for name, killed in (("straight", False), ("killed", True)):
        await around.ledger.redis.flushall()
        here = Surroundings(around.ledger, LocalStore(tmp_path / name), around.models, "cpu")
        groups = await begin(here)
        manifests = await train(here, killed)
        await found_sound(here, manifests, groups)
        results.append([one.files for one in manifests])
    assert results[0] == results[1]


@pytest.mark.parametrize("restarted", [True, False], ids=["new learner", "same learner"])
async def test_what_was_asked_for_outlives_the_ledger(around: Surroundings, restarted: bool):
    groups = await begin(around)
    training = await RunTraining.resume(around, RUN)
    for expected in (Progress.WAITING, Progress.TRAINED, Progress.WAITING):
        await play_released(around)
        assert await training.advance() is expected
        await around.ledger.replicas.mark_ready(RUN, (await around.ledger.runs.summary(RUN)).version_published)
    asked = (await around.ledger.runs.summary(RUN)).groups_asked
    assert asked == 2, "one of the first step, and one of the second, which is not taken yet"

    await around.ledger.redis.flushall()
    await recover(around.ledger, around.store)
    await enter(around.ledger, around.store)
    assert (await around.ledger.runs.summary(RUN)).groups_asked == 1, "this is what checkpoints know of"
    await around.ledger.replicas.mark_ready(RUN, 1)
    if restarted:
        training = await RunTraining.resume(around, RUN)
    assert await training.advance() is Progress.WAITING
    assert (await around.ledger.runs.summary(RUN)).groups_asked == asked

    await found_sound(around, await train(around), groups)


async def test_a_policy_that_always_succeeds_still_makes_versions(around: Surroundings):
    spec: RunSpec = make_spec(selection=CHOSEN)
    assert spec.algorithm.most_groups == 5
    await begin(around)
    training = await RunTraining.resume(around, RUN)
    for expected in (Progress.WAITING, Progress.WAITING, Progress.TRAINED):
        await around.ledger.episodes.release(RUN)
        due = await around.ledger.redis.zrange(key(RUN, "due"), 0, -1)
        for group in sorted({episode.rpartition(".")[0] for episode in due}, key=number):
            await play(around.ledger, around.store, group, (1.0, 1.0, 1.0, 1.0))
        assert await training.advance() is expected

    (manifest,) = committed(around.store, RUN, "policy")
    assert (len(manifest.groups), len(manifest.skipped), manifest.trained_episodes) == (5, 5, [])
    assert manifest.metrics["signal_share"] == 0
    summary = await around.ledger.runs.summary(RUN)
    assert (summary.version_published, summary.groups_asked) == (1, 3)
    assert REGISTRY.get_sample_value("leyden_learner_groups_asked", {"run": RUN}) == 3
    assert REGISTRY.get_sample_value("leyden_learner_signal_share", {"run": RUN, "role": "policy"}) == 0
