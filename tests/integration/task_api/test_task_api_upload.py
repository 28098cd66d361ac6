"""Uploads of tasks: all of them or none, the same key the same episodes, the object before the ledger."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leyden_contracts import Task, TaskInput, TaskUpload
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from leyden_storage.uploads import read_upload, stored_uploads, task_line
from leyden_task_api.settings import TaskApiSettings
from support.task_api import SPEC, task_api

URL = "/v1/runs/mine/tasks"
LINES = {"Content-Type": "application/x-ndjson"}
TASKS = [{"input": f"{n} + 1", "expected": n + 1, "tags": {"length": "short"}} for n in range(5)]


def jsonl(tasks: list[dict]) -> bytes:
    return b"".join(json.dumps(task).encode() + b"\n" for task in tasks)


@pytest.fixture(autouse=True)
def run(http: httpx.Client) -> None:
    assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201


@pytest.fixture
def untouched(store: LocalStore, redis_url: str) -> Iterator[None]:
    """Fails if the test left anything in the store or changed the ledger."""
    import redis

    with redis.Redis.from_url(redis_url) as client:

        def state() -> tuple[list[str], dict[bytes, bytes]]:
            return list(store.list("")), {key: client.dump(key) for key in client.scan_iter()}

        before = state()
        yield
        assert state() == before


def refused(answer: httpx.Response, status: int) -> dict:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


async def test_an_upload_makes_groups_whose_references_find_the_tasks(
    http: httpx.Client, ledger: Ledger, store: LocalStore
) -> None:
    answer = http.post(URL, content=jsonl(TASKS), headers=LINES)
    assert answer.status_code == 202
    uploaded = answer.json()
    assert (uploaded["groups"], uploaded["episodes"], uploaded["repeated"]) == (5, 10, False)
    await ledger.episodes.release("mine")
    for id in await ledger.episodes.due("mine", 10, 60):
        claim = await ledger.episodes.claim("mine", id, "worker", 60)
        assert claim is not None
        task = Task.model_validate_json(task_line(store, "mine", claim.task_ref))
        assert task == Task.of(TaskInput.model_validate(TASKS[int(claim.group.rsplit("-")[-1])]))
        assert claim.group == f"{task.id}-{uploaded['batch']}-{claim.group.rsplit('-')[-1]}"
    (batch,) = stored_uploads(store, "mine")
    upload = read_upload(store, "mine", batch)
    assert upload.asked == TaskUpload(purpose="train", samples=2) and upload.part_lines == [5]
    assert batch.startswith(uploaded["batch"])


@pytest.mark.parametrize("body", [TASKS[0], TASKS])
def test_json_bodies(http: httpx.Client, body: object) -> None:
    assert http.post(URL, json=body).json()["groups"] == (len(body) if isinstance(body, list) else 1)


def test_what_editors_do_to_files_is_understood(http: httpx.Client) -> None:
    body = b"\xef\xbb\xbf" + jsonl(TASKS).replace(b"\n", b"\r\n\r\n").removesuffix(b"\r\n\r\n")
    assert http.post(URL, content=body, headers=LINES).json()["groups"] == 5


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"input": 1', "line 3: Invalid JSON"),
        (b'{"expected": 1}', "line 3: input: Field required"),
        (b'{"input": 1, "answer": 2}', "line 3: answer: Extra inputs are not permitted"),
        (b'{"input": NaN}', "line 3: NaN and infinite numbers are not JSON"),
        (b'{"input": 1e999}', "line 3: NaN and infinite numbers are not JSON"),
        (b'{"input": "\xff"}', "line 3: Invalid JSON"),
        (b'{"input": 1, "tags": {"a": 1}}', "line 3: tags.a: Input should be a valid string"),
        (b"[1]", "line 3: Input should be an object"),
        (b'{"input": "' + b"a" * 2**20 + b'"}', "line 3: longer than 1048576 bytes"),
    ],
)
@pytest.mark.usefixtures("untouched")
def test_one_broken_line_is_named_and_nothing_is_accepted(http: httpx.Client, line: bytes, fault: str) -> None:
    body = jsonl(TASKS[:2]) + line + b"\n" + jsonl(TASKS[2:])
    (error,) = refused(http.post(URL, content=body, headers=LINES), 422)["errors"]
    assert error.startswith(fault)


@pytest.mark.usefixtures("untouched")
def test_only_the_first_twenty_faults_are_told_even_of_a_large_file(http: httpx.Client) -> None:
    body = (b"\n".join([b"broken"] * 100_000) for _ in range(20))
    errors = refused(http.post(URL, content=body, headers=LINES), 422)["errors"]
    assert len(errors) == 20 and errors[-1].startswith("line 20: ")


@pytest.mark.usefixtures("untouched")
def test_a_bad_item_of_a_json_list_is_named(http: httpx.Client) -> None:
    (error,) = refused(http.post(URL, json=[*TASKS, {"question": 1, "input": 2}]), 422)["errors"]
    assert error == "task 6: question: Extra inputs are not permitted"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"purpose": "test"}, 422),
        ({"samples": 0}, 422),
        ({"samples": 1}, 422),
        ({"policy_version": 0}, 422),
        ({"purpose": "eval", "policy_version": 1}, 422),
        ({"purposes": "eval"}, 422),
        ({"purpose": "eval", "samples": 257}, 422),
    ],
)
def test_questions_the_run_cannot_answer_are_refused(http: httpx.Client, params: dict, status: int) -> None:
    refused(http.post(URL, content=jsonl(TASKS), headers=LINES, params=params), status)


@pytest.mark.usefixtures("untouched")
def test_other_kinds_of_body_are_refused(http: httpx.Client) -> None:
    assert (
        "application/x-ndjson"
        in refused(http.post(URL, content=b"a,b", headers={"Content-Type": "text/csv"}), 415)["detail"]
    )
    refused(http.post(URL, content=jsonl(TASKS)), 415)
    refused(http.post(URL, content=b"", headers=LINES), 422)
    refused(http.post(URL, json=[]), 422)
    refused(http.post(URL, content=jsonl(TASKS), headers={**LINES, "Content-Encoding": "gzip"}), 415)
    refused(http.post("/v1/runs/absent/tasks", content=jsonl(TASKS), headers=LINES), 404)


async def test_the_same_key_or_content_twice_makes_the_same_episodes(http: httpx.Client, ledger: Ledger) -> None:
    for headers in ({**LINES, "Idempotency-Key": "first pass"}, LINES):
        answers = [http.post(URL, content=jsonl(TASKS), headers=headers).json() for _ in range(2)]
        assert [answer.pop("repeated") for answer in answers] == [False, True]
        assert answers[0] == answers[1]
    assert (await ledger.runs.summary("mine")).counts == {"train:queued": 20}


def test_the_same_key_for_something_else_is_refused(http: httpx.Client, store: LocalStore) -> None:
    headers = {**LINES, "Idempotency-Key": "k"}
    assert http.post(URL, content=jsonl(TASKS), headers=headers).status_code == 202
    before = list(store.list(""))
    refused(http.post(URL, content=jsonl(TASKS[1:]), headers=headers), 422)
    refused(http.post(URL, content=jsonl(TASKS), headers=headers, params={"samples": 3}), 422)
    assert list(store.list("")) == before
    assert http.get("/v1/runs/mine").json()["summary"]["counts"] == {"train:queued": 10}


async def test_nothing_is_entered_in_the_ledger_before_the_store_has_the_tasks(
    http: httpx.Client, ledger: Ledger, tmp_path: Path
) -> None:
    # A file where the folder should be: every write of tasks fails.
    (tmp_path / "store/runs/mine/tasks").write_text("")
    refused(http.post(URL, content=jsonl(TASKS), headers=LINES), 503)
    assert (await ledger.runs.summary("mine")).counts == {}


async def test_creating_a_run_again_after_the_ledger_was_lost_brings_back_its_uploads(
    http: httpx.Client, ledger: Ledger
) -> None:
    http.post(URL, content=jsonl(TASKS), headers=LINES)
    await ledger.redis.flushall()
    assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201
    assert (await ledger.runs.summary("mine")).counts == {"train:queued": 10}
    assert http.post(URL, content=jsonl(TASKS), headers=LINES).json()["repeated"]


def test_a_sealed_run_takes_evaluations_only(http: httpx.Client, store: LocalStore) -> None:
    http.post(URL, content=jsonl(TASKS), headers=LINES)
    http.post("/v1/runs/mine/seal")
    before = list(store.list(""))
    assert "sealed" in refused(http.post(URL, content=jsonl(TASKS[1:]), headers=LINES), 409)["detail"]
    assert list(store.list("")) == before
    assert http.post(URL, content=jsonl(TASKS), headers=LINES).json()["repeated"]
    answer = http.post(URL, content=jsonl(TASKS), headers=LINES, params={"purpose": "eval", "policy_version": 0})
    assert answer.status_code == 202 and answer.json()["episodes"] == 5


@pytest.mark.usefixtures("untouched")
def test_limits(settings: TaskApiSettings, http: httpx.Client) -> None:
    small = settings.model_copy(update={"max_upload_bytes": 200_000, "max_episodes_per_upload": 9})
    with task_api(small) as url, httpx.Client(base_url=url, headers=http.headers) as client:
        assert "split" in refused(client.post(URL, content=jsonl(TASKS), headers=LINES), 413)["detail"]
        big = jsonl(TASKS * 1000)
        assert "200000" in refused(client.post(URL, content=big, headers=LINES), 413)["detail"]
        refused(client.post(URL, content=(big for _ in range(20)), headers=LINES), 413)


def test_a_thousand_tasks_take_a_moment(http: httpx.Client) -> None:
    tasks = [{"input": n} for n in range(1000)]
    answer = http.post(URL, content=jsonl(tasks), headers=LINES)
    assert answer.json()["episodes"] == 2000
    assert answer.elapsed.total_seconds() < 5
