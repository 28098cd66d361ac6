"""Reading uploads back: every task once, in order, at its place; damage is noticed."""

import pytest

from leyden_contracts import StoredUpload, Task, TaskInput, TaskUpload
from leyden_contracts.task_line import task_line as line_of
from leyden_storage import LocalStore, ObjectNotFound, StoreError
from leyden_storage.keys import task_part_key, upload_key
from leyden_storage.uploads import UploadReader, part_folder, read_upload, stored_uploads, task_line

DIGEST = "0123456789abcdef" * 4
BATCH = "f" * 24


class CountingStore(LocalStore):
    """Notes what is read."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return super().get(key)


@pytest.fixture
def store(tmp_path) -> CountingStore:
    return CountingStore(tmp_path / "store")


def put(store: LocalStore, sizes: list[int], batch: str = BATCH) -> list[Task]:
    tasks = [Task.of(TaskInput(input=f"Wörter {n} \u2028\x85\r")) for n in range(sum(sizes))]
    upload = StoredUpload(batch=batch, asked=TaskUpload(samples=2), digest=DIGEST, part_lines=sizes, created=1.0)
    done = 0
    for part, size in enumerate(sizes):
        lines = [line_of(task.model_dump(exclude={"id"})) + b"\n" for task in tasks[done : done + size]]
        store.put(task_part_key("r", part_folder(upload), part), b"".join(lines))
        done += size
    store.put(upload_key("r", batch), upload.model_dump_json().encode())
    return tasks


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_windows_of_any_size_find_every_task(store: CountingStore, count: int) -> None:
    tasks = put(store, [3, 1, 4, 2])
    reader = UploadReader(store, "r", BATCH)
    assert reader.upload.groups == 10
    found = [task for start in range(0, 12, count) for task in reader.tasks(start, count)]
    assert [(task.id, task.number) for task in found] == [(task.id, n) for n, task in enumerate(tasks)]
    for task, stored in zip(tasks, found, strict=True):
        assert Task.model_validate_json(task_line(store, "r", stored.ref)) == task
        assert len(stored.ref) <= 64
    # The manifest, and each part once: the last one is kept.
    assert len(store.read) == 5


def test_windows_out_of_order_are_right_too(store: CountingStore) -> None:
    tasks = put(store, [3, 4])
    reader = UploadReader(store, "r", BATCH)
    for start in (5, 0, 2, 6, 7, 1):
        expected = [(n, tasks[n].id) for n in range(start, min(start + 2, 7))]
        assert [(task.number, task.id) for task in reader.tasks(start, 2)] == expected


def test_only_uploads_with_a_manifest_are_listed(store: CountingStore) -> None:
    assert stored_uploads(store, "r") == []
    store.put(task_part_key("r", "a" * 24, 0), b"")
    put(store, [1], "c" * 24)
    put(store, [1], "b" * 24)
    assert stored_uploads(store, "r") == ["b" * 24, "c" * 24]
    assert stored_uploads(store, "r-other") == []
    with pytest.raises(ObjectNotFound):
        UploadReader(store, "r", "a" * 24)


@pytest.mark.parametrize("damage", [b"", b'{"input":1}\n', b'{"id":"0123', b"x\n" * 2])
def test_a_damaged_part_is_noticed(store: CountingStore, damage: bytes) -> None:
    put(store, [2])
    store.put(task_part_key("r", part_folder(read_upload(store, "r", BATCH)), 0), damage)
    with pytest.raises(StoreError, match="00000.jsonl"):
        UploadReader(store, "r", BATCH).tasks(0, 1)


def test_a_missing_part_and_a_damaged_manifest_are_noticed(store: CountingStore) -> None:
    put(store, [2])
    store.put(upload_key("r", BATCH), b"{}")
    with pytest.raises(StoreError, match="no manifest"):
        read_upload(store, "r", BATCH)


@pytest.mark.parametrize("ref", ["", "a/0#0", "a/b#0+1", "../0#0+1", "a/0#-1+2", "runs/r/run.json#0+1", "a/0#0+1\n"])
def test_what_is_no_reference_is_refused(store: CountingStore, ref: str) -> None:
    with pytest.raises(ValueError, match="no reference"):
        task_line(store, "r", ref)
