"""The keeper: merges what ended runs have stored, and deletes what they need not keep. No episode is ever forgotten."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence

import pytest

from leyden_contracts import Purpose, RunSpec, StoredUpload, Task, TaskInput, TaskUpload, group_id
from leyden_contracts.task_line import task_line
from leyden_ledger import Ledger, NewGroup, NewUpload
from leyden_ledger.archive import Archive
from leyden_ledger.check import check_run
from leyden_ledger.recovery import recover_run
from leyden_ledger.store import KEEPING
from leyden_storage import LocalStore, ObjectStore
from leyden_storage.keys import (
    ended_key,
    manifest_key,
    merged_segments_prefix,
    run_key,
    segment_key,
    segments_prefix,
    task_part_key,
    trajectories_prefix,
    upload_key,
)
from leyden_storage.segments import loose_segments, read_segments
from leyden_storage.uploads import UploadReader, part_folder
from leyden_task_api import telemetry
from leyden_task_api.keeper import Keeper
from leyden_task_api.loops import archive
from leyden_task_api.settings import TaskApiSettings
from support.learning import RUN, make_spec
from support.playing import FAILS, play

SEGMENTS = [b"segment-%d" % number for number in range(7)]
DAY_S = 86_400


def keeper_of(
    ledger: Ledger, store: ObjectStore, stop: asyncio.Event | None = None, merged_bytes: int = 10**6
) -> Keeper:
    return Keeper(ledger, store, stop or asyncio.Event(), merged_bytes)


async def end_run(ledger: Ledger, store: ObjectStore, **retention: float) -> RunSpec:
    """Make a finished run of 8 episodes, one of them failed, with segments, and archive it."""
    spec = make_spec(group_size=2, groups_per_step=4)
    rules = spec.episodes.model_copy(update={"max_attempts": 1})
    spec = RunSpec.model_validate(spec.model_dump() | {"episodes": rules, "retention": retention})
    store.create(run_key(RUN), spec.model_dump_json().encode())
    await ledger.runs.create(spec)
    await upload(ledger, store, [1.0, 0.5], [1.0, 0.5], [1.0, 0.5], [1.0, FAILS])
    for number, segment in enumerate(SEGMENTS):
        store.create(segment_key(RUN, f"{number:032x}"), segment)
    await ledger.runs.seal(RUN)
    await ledger.runs.finish(RUN)
    await archive_all(ledger, store)
    return spec


async def upload(
    ledger: Ledger, store: ObjectStore, *rewards: Sequence[float | None], purpose: Purpose = "train"
) -> list[str]:
    """Upload a task for each group of `rewards`, and play it; return the groups."""
    tasks = [Task.of(TaskInput(input=f"{purpose}-{number}")) for number in range(len(rewards))]
    batch, asked = hashlib.sha256(purpose.encode()).hexdigest()[:24], TaskUpload(purpose=purpose, samples=2)
    stored = StoredUpload(batch=batch, asked=asked, digest=batch, part_lines=[len(tasks)], created=1.0)
    lines = b"".join(task_line({"input": task.input}) + b"\n" for task in tasks)
    store.put(task_part_key(RUN, part_folder(stored), 0), lines)
    store.put(upload_key(RUN, batch), stored.model_dump_json().encode())
    await ledger.uploads.register(RUN, NewUpload(batch, batch, len(tasks), 2, purpose))
    found = UploadReader(store, RUN, batch).tasks(0, len(tasks))
    groups = [NewGroup(group_id(task.id, batch, task.number), task.id, task.ref) for task in found]
    await ledger.uploads.enter(RUN, batch, 0, groups)
    await ledger.episodes.release(RUN)
    for group, graded in zip(groups, rewards, strict=True):
        if graded:
            await play(ledger, store, group.id, graded)
    return [group.id for group in groups]


def train_on(store: ObjectStore, groups: list[str], episodes: list[str]) -> None:
    manifest = {
        "run": RUN,
        "role": "policy",
        "version": 1,
        "parent": 0,
        "files": {},
        "groups": groups,
        "trained_episodes": episodes,
        "skipped": {},
        "probes": [],
        "metrics": {},
        "config": {},
        "created": 0.0,
    }
    store.put(manifest_key(RUN, "policy", 1), json.dumps(manifest).encode())


async def archive_all(ledger: Ledger, store: ObjectStore) -> None:
    assert await ledger.runs.rest(RUN)
    settings = TaskApiSettings.model_validate({"signing_key": "k" * 40, "archive_after_s": 0})
    assert await archive(ledger, store, settings) == 1


async def due_in(ledger: Ledger) -> float | None:
    """Return the seconds until the run wants care; None for never."""
    at = await ledger.redis.zscore(KEEPING, RUN)
    return None if at is None else at - await ledger.keeping.now()


async def later(ledger: Ledger, store: ObjectStore, days: float) -> None:
    """Let the run have ended `days` ago."""
    await asyncio.to_thread(store.put, ended_key(RUN), b'{"ended": %f}' % (await ledger.keeping.now() - days * DAY_S))
    await ledger.redis.zadd(KEEPING, {RUN: 0})


async def test_an_ended_runs_segments_are_merged_once_and_it_is_left_alone(
    ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end_run(ledger, store)
    merged = telemetry.MERGED._value.get()
    keeper = keeper_of(ledger, store)
    assert await keeper.round() == 1
    assert list(loose_segments(store, RUN)) == [] and sorted(read_segments(store, RUN)) == SEGMENTS
    assert len(list(store.list(segments_prefix(RUN)))) == 1
    assert telemetry.MERGED._value.get() - merged == len(SEGMENTS)
    assert await due_in(ledger) is None and await keeper.round() == 0

    async def stale(count: int) -> list[tuple[str, float]]:
        return [(RUN, 0.0)]

    monkeypatch.setattr(ledger.keeping, "due", stale)
    assert await keeper.round() == 0, "somebody else has been here since"
    assert await check_run(ledger, store, RUN) == []


async def test_on_s3_too(ledger: Ledger, s3_store: ObjectStore) -> None:
    await end_run(ledger, s3_store, trajectories_days=1, segments_days=2)
    assert await keeper_of(ledger, s3_store).round() == 1
    assert sorted(read_segments(s3_store, RUN)) == SEGMENTS
    assert len(list(s3_store.list(merged_segments_prefix(RUN)))) == 1
    await later(ledger, s3_store, 1.5)
    assert await keeper_of(ledger, s3_store).round() == 1
    assert list(s3_store.list(trajectories_prefix(RUN))) == [] and sorted(read_segments(s3_store, RUN)) == SEGMENTS
    assert await check_run(ledger, s3_store, RUN) == []
    assert DAY_S * 0.4 < (await due_in(ledger) or 0) < DAY_S * 0.6
    await later(ledger, s3_store, 2.5)
    assert await keeper_of(ledger, s3_store).round() == 1
    assert list(s3_store.list(segments_prefix(RUN))) == [] and await due_in(ledger) is None


async def test_a_run_is_looked_at_when_its_retention_ends_and_not_before(ledger: Ledger, store: LocalStore) -> None:
    await end_run(ledger, store, segments_days=0, trajectories_days=30)
    keeper = keeper_of(ledger, store)
    assert await keeper.round() == 1
    assert list(store.list(segments_prefix(RUN))) == []
    assert 29.9 * DAY_S < (await due_in(ledger) or 0) <= 30 * DAY_S
    assert await keeper.round() == 0
    assert len(list(store.list(trajectories_prefix(RUN)))) == 7


async def test_deleted_trajectories_are_no_violation_and_their_episodes_do_not_run_again(
    ledger: Ledger, store: LocalStore
) -> None:
    await end_run(ledger, store, trajectories_days=1)
    ended = await Archive(ledger, store).list(RUN, count=100)
    trained = [episode for episode in ended if episode.state == "succeeded"]
    train_on(store, [*dict.fromkeys(episode.group for episode in ended)], [episode.id for episode in trained])
    assert await check_run(ledger, store, RUN) == []
    await later(ledger, store, 2)
    assert await keeper_of(ledger, store).round() == 1
    assert list(store.list(trajectories_prefix(RUN))) == []
    assert await check_run(ledger, store, RUN) == []
    before = {one.id: one for one in await Archive(ledger, store).list(RUN, count=100)}

    await ledger.redis.flushall()
    assert await recover_run(ledger, store, RUN)
    after = {one.id: one for one in await ledger.episodes.list(RUN, count=100)}
    assert (await ledger.runs.summary(RUN)).unfinished == 0
    assert after.keys() == before.keys()
    for id, episode in before.items():
        if episode.state == "succeeded":
            same = {"state", "attempt", "reward", "calls", "policy_version", "task", "group"}
            assert after[id].model_dump(include=same) == episode.model_dump(include=same)
        else:
            assert after[id].state == "failed"
    assert await check_run(ledger, store, RUN) == []


async def test_evaluations_after_the_end_are_watched_and_kept_like_the_rest(ledger: Ledger, store: LocalStore) -> None:
    await end_run(ledger, store, trajectories_days=1)
    await later(ledger, store, 2)
    keeper = keeper_of(ledger, store)
    assert await keeper.round() == 1
    (late,) = await upload(ledger, store, [1.0, 0.0], purpose="eval")
    (first, second) = store.list(trajectories_prefix(RUN))
    assert await check_run(ledger, store, RUN) == []
    kept = store.get(second)
    store.delete(second)
    assert [one.subject for one in await check_run(ledger, store, RUN)] == [f"{late}.1"], "it is no expired one"
    store.create(second, kept)
    await archive_all(ledger, store)
    assert await keeper.round() == 1
    assert list(store.list(trajectories_prefix(RUN))) == []
    assert await check_run(ledger, store, RUN) == []
    assert first != second


async def test_a_run_with_work_is_left_alone(ledger: Ledger, store: LocalStore) -> None:
    await end_run(ledger, store, segments_days=0, trajectories_days=0)
    await upload(ledger, store, [], purpose="eval")
    await keeper_of(ledger, store).round()
    assert len(list(loose_segments(store, RUN))) == len(SEGMENTS)
    assert len(list(store.list(trajectories_prefix(RUN)))) == 7
    assert 0 < (await due_in(ledger) or 0) < 3600, "it comes back"


async def test_what_comes_while_it_looks_is_not_deleted(ledger: Ledger, store: LocalStore) -> None:
    """An evaluation begins between the first look at the run and the listing."""
    await end_run(ledger, store, segments_days=0)
    late = segment_key(RUN, "f" * 32)
    seen = []

    def listed(self: LocalStore, prefix: str) -> Iterator[str]:
        found = [*LocalStore.list(self, prefix)]
        if prefix == segments_prefix(RUN) and not seen:
            seen.append(prefix)
            asyncio.run_coroutine_threadsafe(upload(ledger, store, [], purpose="eval"), loop).result(60)
            store.create(late, b"of an attempt under way")
            found.append(late)
        yield from found

    loop = asyncio.get_running_loop()
    slow = type("Slow", (LocalStore,), {"list": listed})(store._root)
    await keeper_of(ledger, slow).round()
    assert seen and store.exists(late)
    assert len(list(loose_segments(store, RUN))) == len(SEGMENTS) + 1


async def test_several_keepers_share_the_work(ledger: Ledger, store: LocalStore) -> None:
    await end_run(ledger, store, trajectories_days=0)
    kept = await asyncio.gather(*(keeper_of(ledger, store).round() for _ in range(4)))
    assert sum(kept) == 1
    assert sorted(read_segments(store, RUN)) == SEGMENTS and list(loose_segments(store, RUN)) == []
    assert list(store.list(trajectories_prefix(RUN))) == []
    assert await check_run(ledger, store, RUN) == []
    assert await ledger.redis.keys("*keeper*") == []


@pytest.mark.parametrize("deleted", [0, 3])
async def test_a_keeper_that_fails_comes_back_and_nothing_is_lost(
    ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    """Cut off at a deletion, the checker and a recovery find every episode."""
    await end_run(ledger, store, trajectories_days=0)
    keys = list(store.list(trajectories_prefix(RUN)))

    class Cut(LocalStore):
        left = deleted

        def delete(self, key: str) -> None:
            if key in keys:
                self.left -= 1
                if self.left < 0:
                    raise OSError("the process ends")
            super().delete(key)

    monkeypatch.setattr("leyden_task_api.keeper._THREADS", 1)
    await keeper_of(ledger, Cut(store._root)).round()
    assert len(list(store.list(trajectories_prefix(RUN)))) == 7 - deleted
    assert await check_run(ledger, store, RUN) == []
    assert 0 < (await due_in(ledger) or 0) < 3600
    await ledger.redis.flushall()
    assert await recover_run(ledger, store, RUN)
    assert (await ledger.runs.summary(RUN)).unfinished == 0
    assert await check_run(ledger, store, RUN) == []


async def test_a_stopping_process_does_not_wait_for_all_of_it(
    ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leyden_storage.segments._FRAME_BYTES", 1)
    monkeypatch.setattr("leyden_storage.segments._AT_ONCE", 2)
    await end_run(ledger, store)
    stop = asyncio.Event()

    class Stopping(LocalStore):
        def create(self, key: str, data: bytes) -> bool:
            if key.startswith(merged_segments_prefix(RUN)):
                loop.call_soon_threadsafe(stop.set)
            return super().create(key, data)

    loop = asyncio.get_running_loop()
    assert await keeper_of(ledger, Stopping(store._root), stop, merged_bytes=1).round() == 1
    assert len(list(store.list(merged_segments_prefix(RUN)))) == 1 and len(list(loose_segments(store, RUN))) == 5
    assert sorted(read_segments(store, RUN)) == SEGMENTS
    assert (await due_in(ledger) or 0) <= 0, "the next process goes on at once"
    assert await keeper_of(ledger, store).round() == 1
    assert list(loose_segments(store, RUN)) == [] and sorted(read_segments(store, RUN)) == SEGMENTS
