"""Stored trajectories over HTTP: listed, exported, scored again; and refused spans."""

import base64
import io
import json
import tarfile
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Trajectory
from leyden_ledger import Ledger
from leyden_ledger.archive import archive_run
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore, StoreError
from leyden_storage.keys import quarantine_key
from leyden_task_api.settings import TaskApiSettings
from support.task_api import SPEC, task_api
from support.trajectories import ANSWER, ASKED, REQUEST, TOLD, finish_with_trajectories

URL = "/v1/runs/mine/trajectories"
TASKS = [{"input": n, "expected": n + 1} for n in range(3)]


@pytest.fixture
async def made(http: httpx.Client, ledger: Ledger, store: LocalStore) -> list[Trajectory]:
    """A run of three groups of two; of the last group the first episode is text only and the second failed."""
    spec = {**SPEC, "id": "mine", "episodes": {"max_attempts": 1}, "algorithm": {"groups_per_step": 3}}
    assert http.post("/v1/runs", json=spec).status_code == 201
    assert http.post("/v1/runs/mine/tasks", json=TASKS).status_code == 202
    last = http.get("/v1/runs/mine/episodes").json()["episodes"][-1]
    return await finish_with_trajectories(
        ledger,
        store,
        "mine",
        reward=lambda episode: None if episode.id == last["id"] else 0.5 + episode.index,
        text_only=lambda episode: episode.group == last["group"],
    )


def export(http: httpx.Client, format: str = "jsonl", **asked: object) -> bytes:
    answer = http.get(f"{URL}/export", params={"format": format, **asked})
    assert answer.status_code == 200, answer.text
    return answer.content


async def test_heads_are_listed_page_by_page_and_filtered(
    http: httpx.Client, ledger: Ledger, store: LocalStore, made: list[Trajectory]
) -> None:
    async def look() -> list[list[dict]]:
        pages, start = [], 0
        while start is not None:
            page = http.get(URL, params={"start": start, "count": 2}).json()
            pages.append(page["trajectories"])
            start = page["next"]
        return pages

    pages = await look()
    assert [len(page) for page in pages] == [2, 2, 1]
    heads = [head for page in pages for head in page]
    assert [head["episode"] for head in heads] == [one.episode for one in made]
    assert heads[0] | {"episode": "", "group": "", "task": ""} == {
        "episode": "",
        "group": "",
        "task": "",
        "attempt": 1,
        "purpose": "train",
        "reward": 0.5,
        "rewards": {},
        "verdict": "complete",
        "calls": 2,
        "tokens": 5 + 2 + 10 + 2,
        "steps": 0,
        "texts": 0,
        "output": "out-0",
    }
    (text,) = http.get(URL, params={"verdict": "text_only"}).json()["trajectories"]
    assert (text["calls"], text["texts"]) == (0, 2)
    group = http.get(URL, params={"group": made[2].group}).json()
    assert [head["episode"] for head in group["trajectories"]] == [made[2].episode, made[3].episode]
    assert http.get(URL, params={"purpose": "eval"}).json()["trajectories"] == []
    tasks = http.get(URL, params={"tasks": True}).json()["tasks"]
    assert {id: (task["input"], task["expected"]) for id, task in tasks.items()} == {
        made[place].task: (place // 2, place // 2 + 1) for place in (0, 2, 4)
    }
    # As before when the run has left Redis.
    http.post("/v1/runs/mine/cancel")
    await ledger.episodes.expire("mine", 0)
    assert await archive_run(ledger, store, "mine")
    assert await look() == pages
    assert http.get(URL, params={"group": made[2].group}).json() == group


def test_jsonl_is_canonical_and_complete(http: httpx.Client, made: list[Trajectory]) -> None:
    body = export(http)
    assert body == export(http)
    lines = [json.loads(line) for line in body.splitlines()]
    assert [(line["group"], line["episode"]) for line in lines] == sorted((one.group, one.episode) for one in made)
    as_said = [
        json.loads(line, object_pairs_hook=lambda pairs: [name for name, _ in pairs]) for line in body.splitlines()
    ]
    assert all(names == sorted(names) for names in as_said)
    for line in lines:
        assert line == http.get(f"{URL}/{line['episode']}").json()
    some = [json.loads(line) for line in export(http, min_reward=1, verdict="complete").splitlines()]
    assert sorted(line["episode"] for line in some) == sorted(made[place].episode for place in (1, 3))
    assert export(http, purpose="eval") == b""


def test_parquet_has_a_row_a_call_in_plain_columns(http: httpx.Client, made: list[Trajectory]) -> None:
    body = export(http, "parquet")
    assert body == export(http, "parquet")
    rows = pq.read_table(io.BytesIO(body)).to_pylist()
    expected = [
        (one, call) for one in sorted(made, key=lambda one: (one.group, one.episode)) for call in one.transitions
    ]
    assert len(rows) == len(expected) == 8
    for row, (trajectory, call) in zip(rows, expected, strict=True):
        assert (row["episode"], row["number"], row["reward"]) == (trajectory.episode, call.number, trajectory.reward)
        assert row["prompt_token_ids"] == np.frombuffer(call.prompt_token_ids, "<i4").tolist()
        assert row["response_token_ids"] == np.frombuffer(call.response_token_ids, "<i4").tolist()
        assert np.array(row["response_logprobs"], "<f4").tobytes() == call.response_logprobs
        assert json.loads(row["output"]) == trajectory.output
    nothing = pq.read_table(io.BytesIO(export(http, "parquet", purpose="eval")))
    assert nothing.num_rows == 0 and "response_logprobs" in nothing.column_names


def test_text_only_trajectories_are_conversations(http: httpx.Client, made: list[Trajectory]) -> None:
    (line,) = export(http, text_only=True).splitlines()
    row = json.loads(line)
    # The first call is the beginning of the second one's conversation.
    assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    plain = [{name: value for name, value in message.items() if value is not None} for message in row["messages"]]
    asked = {name: value for name, value in ASKED.items() if value is not None}
    assert plain == [*REQUEST, asked, TOLD, ANSWER]
    (same,) = pq.read_table(io.BytesIO(export(http, "parquet", text_only=True))).to_pylist()
    assert same == row


def test_datasets_loads_the_exported_folder(
    http: httpx.Client, made: list[Trajectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import datasets  # here: it reads the environment when it is imported

    body = export(http, "datasets")
    assert body == export(http, "datasets")
    for name, asked in (("calls", {}), ("chat", {"text_only": True})):
        with tarfile.open(fileobj=io.BytesIO(export(http, "datasets", **asked))) as tar:
            tar.extractall(tmp_path / name, filter="data")
    cache = str(tmp_path / "cache")
    calls = datasets.load_dataset(str(tmp_path / "calls"), cache_dir=cache)["train"]
    assert len(calls) == 8 and calls[0]["response_token_ids"] == [0, 1]
    chat = datasets.load_dataset(str(tmp_path / "chat"), split="train", cache_dir=cache)
    assert chat[0]["messages"][-1]["content"] == "It is 4."
    assert chat[0]["messages"][2]["tool_calls"][0]["function"]["name"] == "add"


def test_an_export_finds_its_place_again(
    http: httpx.Client, made: list[Trajectory], settings: TaskApiSettings, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreError("away")

    with task_api(settings.model_copy(update={"max_exports_at_once": 1})) as url:
        asked = {"headers": {"Authorization": f"Bearer {token}"}, "timeout": 20}
        for _ in range(3):
            assert httpx.get(f"{url}{URL}/export", **asked).status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr("leyden_task_api.routes.trajectories.stored_trajectories", fails)
            assert httpx.get(f"{url}{URL}/export", **asked).status_code == 503
        with httpx.stream("GET", f"{url}{URL}/export", **asked) as answer:
            next(answer.iter_raw(10))  # and goes away
        assert httpx.get(f"{url}{URL}/export", **asked).status_code == 200


def rewards(made: list[Trajectory], **more: object) -> dict:
    lines = [{"episode": one.episode, "attempt": 1, "reward": place / 4} for place, one in enumerate(made[:3])]
    failed = {made[3].episode: "it raised"}
    return {"version": "v2", "grader": "mine:grade", "lines": lines, "failed": failed, **more}


def test_a_reward_version_is_kept_beside_the_trajectories(http: httpx.Client, made: list[Trajectory]) -> None:
    before = export(http)
    answer = http.post("/v1/runs/mine/regrades", json=rewards(made))
    assert answer.status_code == 201
    head = answer.json()
    assert (head["version"], head["scored"], head["failed"], head["mean"]) == ("v2", 3, 1, 0.25)
    assert http.post("/v1/runs/mine/regrades", json=rewards(made)).status_code == 200
    other = rewards(made, grader="mine:other")
    assert http.post("/v1/runs/mine/regrades", json=other).status_code == 409
    assert http.get("/v1/runs/mine/regrades").json() == [head]
    whole = http.get("/v1/runs/mine/regrades/v2").json()
    assert whole["failed"] == {made[3].episode: "it raised"} and len(whole["lines"]) == 3
    assert export(http) == before
    shown = [one["reward"] for one in http.get(URL, params={"rewards": "v2"}).json()["trajectories"]]
    assert shown == [0.0, 0.25, 0.5, None, None]
    lines = [json.loads(line) for line in export(http, rewards="v2").splitlines()]
    assert {line["episode"]: line["reward"] for line in lines} == {
        one.episode: place / 4 for place, one in enumerate(made[:3])
    }
    assert len(export(http, rewards="v2", min_reward=0.5).splitlines()) == 1
    for path in (URL, f"{URL}/export"):
        assert http.get(path, params={"rewards": "v3"}).status_code == 404
    assert http.get("/v1/runs/mine/regrades/v3").status_code == 404


def test_rewards_that_cannot_be_are_refused(http: httpx.Client, made: list[Trajectory]) -> None:
    lines = rewards(made)["lines"]
    failed = http.get("/v1/runs/mine/episodes", params={"state": "failed"}).json()["episodes"][0]["id"]
    for wrong, why in (
        ({"lines": [*lines, lines[0]]}, "twice"),
        ({"failed": {made[0].episode: "no"}}, "twice"),
        ({"lines": [{**lines[0], "episode": "absent"}]}, "no succeeded episode"),
        ({"lines": [{**lines[0], "episode": failed}]}, "no succeeded episode"),
        ({"lines": [{**lines[0], "attempt": 2}]}, "attempt 1 won"),
        ({"lines": [], "failed": {}}, "no episode"),
        ({"lines": [{**lines[0], "reward": "NaN"}]}, "finite"),
        ({"version": "0"}, "at the time"),
        ({"version": "../x"}, "pattern"),
    ):
        answer = http.post("/v1/runs/mine/regrades", json=rewards(made, **wrong))
        assert answer.status_code == 422 and why in answer.text, answer.text
    assert http.get("/v1/runs/mine/regrades").json() == []


def test_refused_spans_are_shown_and_counted(http: httpx.Client, store: LocalStore, made: list[Trajectory]) -> None:
    assert http.get("/v1/runs/mine/quarantine").json() == {"spans": [], "next": None}
    span = Span(trace_id=b"t" * 16, span_id=b"s" * 8, name="n" * 9000, end_time_unix_nano=1_700_000_000_500_000_000)
    lines = [
        {"kind": "malformed", "reason": "cut", "span": base64.b64encode(span.SerializeToString()).decode()},
        {"kind": "foreign", "reason": "not yours", "span": base64.b64encode(b"\xff\xff").decode()},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for name in ("a", "b"):
        store.put(quarantine_key("mine", f"{name}.jsonl"), text)
    store.put(quarantine_key("mine", "c.jsonl"), b"no JSON\n")
    shown, after = [], ""
    while after is not None:
        page = http.get("/v1/runs/mine/quarantine", params={"after": after, "count": 2}).json()
        shown += page["spans"]
        after = page["next"]
    assert [one["kind"] for one in shown] == ["malformed", "foreign"] * 2 + ["unknown"]
    first, second = shown[:2]
    assert first["ended"] == 1_700_000_000.5 and first["span"]["traceId"] == "74" * 16
    assert len(first["span"]["name"]) < 600 and first["bytes"] > 9000
    assert second["span"] is None and second["bytes"] == 2 and second["reason"] == "not yours"
    counts = http.get("/v1/runs/mine/quarantine/counts").json()
    assert counts == {"kinds": {"foreign": 2, "malformed": 2, "unknown": 1}, "complete": True}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/trajectories"),
        ("GET", "/trajectories/export"),
        ("GET", "/quarantine"),
        ("GET", "/quarantine/counts"),
        ("POST", "/regrades"),
        ("GET", "/regrades"),
        ("GET", "/regrades/v2"),
    ],
)
def test_another_tenants_run_is_out_of_reach(
    http: httpx.Client, made: list[Trajectory], signing_key: str, method: str, path: str
) -> None:
    body = {"json": rewards(made)} if method == "POST" else {}
    token = Tokens(signing_key).mint(Scope.API, 60, tenant="theirs")
    answer = http.request(method, f"/v1/runs/mine{path}", headers={"Authorization": f"Bearer {token}"}, **body)
    assert answer.status_code == 403 and "tenant" in answer.json()["detail"]
