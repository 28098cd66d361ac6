"""Uploads that are cut off, race each other, or find no room: whole or not at all, and never mixed."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from redis import ConnectionError as RedisAway

from leyden_contracts import StoredUpload, Task, TaskInput, TaskUpload
from leyden_ledger import Conflict, Ledger
from leyden_ledger.uploads import Uploads
from leyden_storage import LocalStore, ObjectStore, StoreError, open_store
from leyden_storage.uploads import UploadReader, stored_uploads, task_line
from leyden_task_api.feeder import Feeder
from leyden_task_api.intake import store_upload
from leyden_task_api.settings import TaskApiSettings
from leyden_task_api.upload import Spool
from support.servers import S3_KEY, S3_SECRET, wait_for
from support.task_api import SPEC, task_api

URL = "/v1/runs/mine/tasks"
LINES = {"Content-Type": "application/x-ndjson"}
KEY = {**LINES, "Idempotency-Key": "k"}
NAME = "mine"


def jsonl(count: int, word: str = "task") -> bytes:
    return b"".join(json.dumps({"input": f"{word} {n}"}).encode() + b"\n" for n in range(count))


def contents(store: ObjectStore, batch: str) -> list[str]:
    tasks = UploadReader(store, NAME, batch).tasks(0, 10**9)
    return [Task.model_validate_json(task_line(store, NAME, task.ref)).input for task in tasks]


@contextmanager
def serving(settings: TaskApiSettings, token: str, **changes: object) -> Iterator[httpx.Client]:
    with (
        task_api(settings.model_copy(update=changes)) as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=20) as http,
    ):
        assert http.post("/v1/runs", json={**SPEC, "id": NAME}).status_code in (200, 201)
        yield http


@pytest.fixture
def own(settings: TaskApiSettings, token: str) -> Iterator[httpx.Client]:
    with serving(settings, token) as http:
        yield http


def test_of_two_uploads_at_once_under_one_key_one_is_stored_whole(own: httpx.Client, store: LocalStore) -> None:
    for attempt in range(5):
        words = [f"a{attempt}", f"b{attempt}", f"c{attempt}"]
        headers = {**LINES, "Idempotency-Key": f"key {attempt}"}
        before = set(stored_uploads(store, NAME))

        def send(word: str, headers: dict[str, str] = headers) -> int:
            return own.post(URL, content=jsonl(200, word), headers=headers).status_code

        with ThreadPoolExecutor(3) as pool:
            statuses = list(pool.map(send, words))
        assert sorted(statuses) == [202, 422, 422]
        (batch,) = set(stored_uploads(store, NAME)) - before
        winner = words[statuses.index(202)]
        assert contents(store, batch) == [f"{winner} {n}" for n in range(200)]


class Hurried(LocalStore):
    """Runs `meanwhile` before the first manifest is written."""

    meanwhile = staticmethod(lambda: None)

    def create(self, key: str, data: bytes) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return super().create(key, data)


@pytest.mark.parametrize("word", ["same", "other"])
def test_who_writes_the_manifest_second_gives_way(tmp_path: Path, word: str) -> None:
    store = Hurried(tmp_path / "raced")

    def spool(word: str) -> tuple[StoredUpload, Spool]:
        asked = TaskUpload(samples=2)
        spool = Spool(asked)
        for number in range(50):
            spool.add_line(number, json.dumps({"input": f"{word} {number}"}).encode())
        head = {"batch": "f" * 24, "asked": asked, "digest": spool.digest(), "created": time.time()}
        return StoredUpload(part_lines=spool.part_lines, **head), spool

    store.meanwhile = lambda: store_upload(store, NAME, *spool(word))
    if word == "same":
        store_upload(store, NAME, *spool("same"))
    else:
        with pytest.raises(Conflict):
            store_upload(store, NAME, *spool("same"))
    assert contents(store, "f" * 24) == [f"{word} {n}" for n in range(50)]


async def test_parts_without_a_manifest_are_no_upload_and_a_retry_completes_them(
    own: httpx.Client, store: LocalStore, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: LocalStore, key: str, data: bytes) -> bool:
        raise StoreError(key)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "create", broken)
        assert own.post(URL, content=jsonl(50), headers=KEY).status_code == 503
    assert [key for key in store.list("") if key.endswith(".jsonl")] and stored_uploads(store, NAME) == []
    assert (await ledger.runs.summary(NAME)).counts == {}
    # Another content under the key of what was broken off: nothing of the first is in it.
    assert own.post(URL, content=jsonl(60, "other"), headers=KEY).json()["groups"] == 60
    assert contents(store, stored_uploads(store, NAME)[0]) == [f"other {n}" for n in range(60)]


async def test_an_upload_that_broke_off_before_the_ledger_is_completed_by_a_retry(
    own: httpx.Client, ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise RedisAway("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Uploads, "register", away)
        assert own.post(URL, content=jsonl(5), headers=LINES).status_code == 503
    assert len(stored_uploads(store, NAME)) == 1 and (await ledger.runs.summary(NAME)).counts == {}

    def no_second_time(self: LocalStore, key: str, data: bytes) -> None:
        raise AssertionError(key)

    monkeypatch.setattr(LocalStore, "put", no_second_time)
    answer = own.post(URL, content=jsonl(5), headers=LINES).json()
    assert (answer["groups"], answer["repeated"]) == (5, False)
    assert (await ledger.runs.summary(NAME)).counts == {"train:queued": 10}


def test_what_is_registered_is_accepted_though_its_first_window_fails(
    own: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(Feeder, "feed", away)
    assert own.post(URL, content=jsonl(5), headers=LINES).status_code == 202


def test_a_refused_upload_leaves_nothing_that_could_come_back(
    settings: TaskApiSettings, token: str, store: LocalStore
) -> None:
    with serving(settings, token, max_backlog_episodes=12) as http:
        assert http.post(URL, content=jsonl(5), headers=LINES).status_code == 202
        before = list(store.list(""))
        answer = http.post(URL, content=jsonl(2, "more"), headers=LINES)
        assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1, answer.text
        http.post(f"/v1/runs/{NAME}/seal")
        assert http.post(URL, content=jsonl(1, "more"), headers=LINES).status_code == 409
        assert [key for key in store.list("runs/mine/tasks/") if key not in before] == []


@contextmanager
def started(http: httpx.Client) -> Iterator[tuple[socket.socket, bytes]]:
    """Begin an upload, without a body as yet; yields the server's first words: 100 once it wants to read the body."""
    with socket.create_connection((http.base_url.host, http.base_url.port), timeout=10) as connection:
        head = f"POST {URL} HTTP/1.1\r\nHost: x\r\nAuthorization: {http.headers['Authorization']}\r\n"
        head += "Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        yield connection, connection.recv(1000)


def test_more_uploads_than_places_are_told_to_come_back(settings: TaskApiSettings, token: str) -> None:
    with serving(settings, token, max_uploads_at_once=2) as http:
        with started(http) as (_, first), started(http) as (_, second):
            assert first.startswith(b"HTTP/1.1 100") and second.startswith(b"HTTP/1.1 100")
            answer = http.post(URL, content=jsonl(1), headers=LINES)
            assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
            assert answer.headers["content-type"] == "application/problem+json"
            with started(http) as (_, third):
                assert third.startswith(b"HTTP/1.1 429"), "before any of the body has come"
            assert http.get(f"/v1/runs/{NAME}").status_code == 200
        # Both clients are gone: their places are free again.
        wait_for(lambda: http.post(URL, content=jsonl(1), headers=LINES).status_code == 202, 30, "a place")


def test_an_upload_that_falls_silent_loses_its_place(settings: TaskApiSettings, token: str) -> None:
    with serving(settings, token, max_uploads_at_once=1, upload_idle_s=0.3) as http, started(http) as (idle, _):
        idle.sendall(b'{"input": 1}\n')
        assert idle.recv(100).startswith(b"HTTP/1.1 408")
        assert http.post(URL, content=jsonl(1), headers=LINES).status_code == 202


def test_an_s3_server_holds_uploads_in_the_same_way(settings: TaskApiSettings, token: str, s3_url: str) -> None:
    changes = {"store_url": s3_url, "s3_access_key": S3_KEY, "s3_secret_key": type(settings.signing_key)(S3_SECRET)}
    store = open_store(s3_url, S3_KEY, S3_SECRET)
    with serving(settings, token, **changes) as http:
        answers = [http.post(URL, content=jsonl(12_000), headers=KEY).json() for _ in range(2)]
        assert [answer["repeated"] for answer in answers] == [False, True]
        assert http.post(URL, content=jsonl(12_000, "other"), headers=KEY).status_code == 422
    (batch,) = stored_uploads(store, NAME)
    reader = UploadReader(store, NAME, batch)
    assert reader.upload.part_lines == [10_000, 2_000]
    tasks = reader.tasks(9_990, 20)
    assert [task.number for task in tasks] == list(range(9_990, 10_010))
    for task in tasks:
        stored = Task.model_validate_json(task_line(store, NAME, task.ref))
        assert stored == Task.of(TaskInput(input=f"task {task.number}")) and stored.id == task.id
