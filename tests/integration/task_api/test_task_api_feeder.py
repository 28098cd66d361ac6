"""The feeder on a real ledger: what several callers ask for at once is read and entered once."""

import asyncio
from typing import Any

from leyden_contracts import RunSpec, StoredUpload, TaskInput, TaskUpload
from leyden_contracts.task_line import task_line
from leyden_ledger import Ledger, NewUpload
from leyden_storage import LocalStore
from leyden_storage.keys import task_part_key, upload_key
from leyden_storage.uploads import UploadReader, part_folder
from leyden_task_api import feeder as feeder_module
from leyden_task_api.feeder import Feeder

RUN, DIGEST = "run-f", "d" * 64
COUNT = 40


async def registered(ledger: Ledger, store: LocalStore) -> None:
    """Store and register an upload."""
    lines = [task_line(TaskInput(input=str(number)).model_dump_json().encode()) for number in range(COUNT)]
    asked = TaskUpload(purpose="eval", samples=1)
    upload = StoredUpload(batch=DIGEST[:24], asked=asked, digest=DIGEST, part_lines=[COUNT], created=1.0)
    store.put(task_part_key(RUN, part_folder(upload), 0), b"".join(line + b"\n" for line in lines))
    store.put(upload_key(RUN, upload.batch), upload.model_dump_json().encode())
    await ledger.runs.create(RunSpec(id=RUN, base_model="m", agent="a:b", grader="a:b"))
    await ledger.uploads.register(RUN, NewUpload(upload.batch, DIGEST, COUNT, 1, "eval"))


async def test_feeding_twice_at_once_reads_once_and_enters_each_group_once(
    ledger: Ledger, store: LocalStore, monkeypatch: Any
) -> None:
    await registered(ledger, store)
    monkeypatch.setattr(feeder_module, "_AT_ONCE", 7)
    read: list[tuple[int, int]] = []
    plain = UploadReader.tasks

    def noted(reader: UploadReader, start: int, count: int) -> Any:
        read.append((start, count))
        return plain(reader, start, count)

    monkeypatch.setattr(UploadReader, "tasks", noted)
    feeder = Feeder(ledger, store, 1000)
    feeding = asyncio.gather(feeder.feed(RUN), feeder.feed(RUN), feeder.feed(RUN))
    await asyncio.sleep(0)
    assert feeder.busy(RUN)
    assert sorted(await feeding) == [0, 0, COUNT]
    assert not feeder.busy(RUN)
    assert read == [(0, 7), (7, 7), (14, 7), (21, 7), (28, 7), (35, 5)]
    episodes = await ledger.episodes.list(RUN, count=100)
    assert [one.group.rpartition("-")[2] for one in episodes] == [str(number) for number in range(COUNT)]


async def test_two_processes_feeding_at_once_enter_each_group_once(ledger: Ledger, store: LocalStore) -> None:
    await registered(ledger, store)
    made = await asyncio.gather(*(Feeder(ledger, store, 1000).feed(RUN) for _ in range(2)))
    assert sum(made) == COUNT
    assert len(await ledger.episodes.list(RUN, count=100)) == COUNT
