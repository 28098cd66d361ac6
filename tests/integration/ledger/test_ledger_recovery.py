"""A ledger that was lost comes back from the object store."""

import pytest

from leyden_contracts import AdapterManifest, StoredUpload, Task, TaskInput, TaskUpload, group_id
from leyden_contracts.task_line import task_line
from leyden_ledger import Ledger, NewGroup, NewUpload, Window
from leyden_ledger.check import check_run
from leyden_ledger.recovery import ATTEMPTS_APART, recover, recover_run
from leyden_storage import LocalStore
from leyden_storage.keys import (
    adapter_prefix,
    batch_name,
    cancelled_key,
    manifest_key,
    run_key,
    sealed_key,
    task_part_key,
    upload_key,
)
from leyden_storage.trajectories import write_batch
from leyden_storage.uploads import UploadReader, part_folder
from support.learning import RUN, make_spec
from support.playing import FAILS, play, played

SPEC = make_spec(group_size=2, groups_per_step=2, max_staleness=5)
DIGEST = "d" * 64
BATCH = "b" * 24
UPLOAD = NewUpload(BATCH, DIGEST, 6, 2, "train")


@pytest.fixture
async def groups(ledger: Ledger, store: LocalStore) -> list[str]:
    """A run with an upload of six tasks, four of them entered; their groups."""
    store.create(run_key(RUN), SPEC.model_dump_json().encode())
    await ledger.runs.create(SPEC)
    stored = [Task.of(TaskInput(input=number)) for number in range(6)]
    lines = b"".join(task_line({"input": number}) + b"\n" for number in range(6))
    asked = TaskUpload(purpose="train", samples=2)
    upload = StoredUpload(batch=BATCH, asked=asked, digest=DIGEST, part_lines=[6], created=1.0)
    store.put(task_part_key(RUN, part_folder(upload), 0), lines)
    store.put(upload_key(RUN, BATCH), upload.model_dump_json().encode())
    await ledger.uploads.register(RUN, UPLOAD)
    names = [group_id(task.id, BATCH, number) for number, task in enumerate(stored)]
    tasks = UploadReader(store, RUN, BATCH).tasks(0, 4)
    await ledger.uploads.enter(RUN, BATCH, 0, [NewGroup(names[t.number], t.id, t.ref) for t in tasks])
    await ledger.episodes.release(RUN)
    return names


def commit(store: LocalStore, groups: list[str], trained: list[str]) -> None:
    store.put(adapter_prefix(RUN, "policy", 1) + "a", b"")
    manifest = AdapterManifest(
        run=RUN,
        role="policy",
        version=1,
        parent=0,
        files={},
        groups=groups,
        trained_episodes=trained,
        skipped={},
        probes=[],
        metrics={},
        config={},
        created=0.0,
    )
    store.put(manifest_key(RUN, "policy", 1), manifest.model_dump_json().encode())


async def test_what_is_stored_has_happened_and_all_else_runs_again(
    ledger: Ledger, store: LocalStore, groups: list[str]
) -> None:
    await play(ledger, store, groups[1], [1.0, FAILS])
    await play(ledger, store, groups[0], [0.0, 1.0])
    await play(ledger, store, groups[2], [0.5])
    # The second group finished first, and one of its episodes has failed for good.
    commit(store, [groups[1], groups[0]], [f"{groups[1]}.0", f"{groups[0]}.0", f"{groups[0]}.1"])
    await ledger.redis.flushall()

    (done,) = await recover(ledger, store)
    assert (done.run, done.uploads, done.succeeded, done.versions) == (RUN, 1, 4, 1)
    assert await check_run(ledger, store, RUN) == []
    summary = await ledger.runs.summary(RUN)
    assert summary.counts["train:succeeded"] == 4 and summary.counts["train:failed"] == 1
    assert (summary.unfinished, summary.pending) == (7, 6)
    assert (summary.groups_consumed, summary.version_published, summary.held) == (2, 1, None)
    assert summary.rewards["train"] == (2.5, 4)
    assert [group.id for group in await ledger.training.finished_groups(RUN, 0, 9)] == [groups[1], groups[0]]
    assert (await ledger.episodes.get(RUN, f"{groups[2]}.0")).reward == 0.5
    assert await ledger.uploads.windows(RUN, 100) == [Window(BATCH, 3, 3, 2)], "the others are entered as ever"

    assert await ledger.episodes.due(RUN, 10, 1) == [f"{groups[2]}.1"]
    claim = await ledger.episodes.claim(RUN, f"{groups[2]}.1", "w", 10)
    assert claim and claim.attempt == ATTEMPTS_APART + 1, "an attempt from before the loss stays fenced"


async def test_groups_that_dynamic_sampling_had_asked_for_stay_asked_for(
    ledger: Ledger, store: LocalStore, groups: list[str]
) -> None:
    for group in groups[:3]:
        await play(ledger, store, group, [0.0, 1.0])
    commit(store, groups[:3], [f"{groups[0]}.0"])
    await ledger.redis.flushall()
    await recover(ledger, store)
    summary = await ledger.runs.summary(RUN)
    assert (summary.groups_consumed, summary.groups_asked) == (3, 1), "a step of two took three"


async def test_recovering_again_changes_nothing(ledger: Ledger, store: LocalStore, groups: list[str]) -> None:
    await play(ledger, store, groups[0], [0.0, 1.0])
    assert await recover(ledger, store) == [], "nothing is lost"
    await ledger.redis.flushall()
    assert len(await recover(ledger, store)) == 1
    before = await ledger.runs.summary(RUN)
    assert await recover(ledger, store) == []
    assert await ledger.runs.summary(RUN) == before


async def test_a_recovery_that_was_cut_off_goes_on_and_nothing_starts_before_its_end(
    ledger: Ledger, store: LocalStore, groups: list[str]
) -> None:
    await play(ledger, store, groups[3], [0.0, 1.0])
    await ledger.redis.flushall()
    await ledger.runs.create(SPEC, ATTEMPTS_APART)
    await ledger.uploads.register(RUN, UPLOAD)
    tasks = UploadReader(store, RUN, BATCH).tasks(0, 1)
    await ledger.uploads.enter(RUN, BATCH, 0, [NewGroup(groups[0], tasks[0].id, tasks[0].ref)])
    assert await ledger.episodes.release(RUN) == 0
    assert await ledger.uploads.windows(RUN, 100) == []

    assert await recover_run(ledger, store, RUN)
    summary = await ledger.runs.summary(RUN)
    assert (summary.counts["train:succeeded"], summary.pending, summary.held) == (2, 4, None)
    assert await check_run(ledger, store, RUN) == []
    assert await ledger.episodes.release(RUN) == 3


@pytest.mark.parametrize(("key", "state"), [(sealed_key, "sealed"), (cancelled_key, "cancelled")])
async def test_a_sealed_or_cancelled_run_stays_so(
    ledger: Ledger, store: LocalStore, groups: list[str], key: object, state: str
) -> None:
    store.create(key(RUN), b"{}")
    await ledger.redis.flushall()
    await recover(ledger, store)
    await ledger.episodes.expire(RUN, 60)
    summary = await ledger.runs.summary(RUN)
    assert summary.state == state
    assert summary.unfinished == (12 if state == "sealed" else 0)


async def test_of_two_stored_attempts_the_later_one_comes_back(
    ledger: Ledger, store: LocalStore, groups: list[str]
) -> None:
    """An object that a collector left behind when an earlier ledger was lost, listed before or after the newer one."""
    await play(ledger, store, groups[0], [0.0, 1.0])
    for index, name in enumerate((batch_name(0, 0), batch_name(1, 7))):
        old = played(RUN, groups[0], index, 0.25, attempt=0 if index else 2)
        write_batch(store, RUN, name, [old])
    await ledger.redis.flushall()
    await recover(ledger, store)
    found = [await ledger.episodes.get(RUN, f"{groups[0]}.{index}") for index in (0, 1)]
    assert [(one.attempt, one.reward, one.batch) for one in found] == [
        (2, 0.25, batch_name(0, 0)),
        (1, 1.0, batch_name(0, 2)),
    ]
    assert await check_run(ledger, store, RUN) == []
