"""Starts over HTTP: what is refused when a run is created, its data on the way in, and where it stands."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from leyden_client import LeydenClient
from leyden_client.cli import app
from leyden_contracts import AdapterManifest, StartOrigin, StartRefusal
from leyden_ledger import Ledger
from leyden_runtime.tokens import ALL_TENANTS, Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.keys import manifest_key, start_key
from leyden_storage.starts import read_start, start_lines, write_refusal
from support.task_api import SPEC, put_adapter

LINES = {"Content-Type": "application/x-ndjson"}
TALK = {"messages": [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]}
PAIR = {"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"}


def jsonl(*lines: object) -> bytes:
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


def create(http: httpx.Client, start: dict[str, Any] | None, id: str = "mine", **more: Any) -> httpx.Response:
    return http.post("/v1/runs", json={**SPEC, "id": id, **more, **({"start": start} if start else {})})


@pytest.fixture
async def source(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    """A finished run `old` with version 1."""
    assert create(http, None, "old").status_code == 201
    put_adapter(store, "old", 1)
    await ledger.training.publish("old", 1)
    await ledger.runs.seal("old")
    await ledger.runs.finish("old")


def test_what_cannot_work_is_refused(http: httpx.Client) -> None:
    answer = create(http, {"kind": "sft", "epochs": 2, "steps": 3})

    assert answer.status_code == 422
    assert "give one of them" in " ".join(answer.json()["errors"])


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("kind", ["sft", "dpo", "adapter"])
def test_a_run_begins_with_a_run_that_fits(http: httpx.Client, kind: str) -> None:
    start = {"kind": kind, "run": "old"} | ({"version": 1} if kind == "adapter" else {})

    assert create(http, start).status_code == 201
    assert create(http, start).status_code == 200

    assert create(http, start | {"run": "nobody"}, "other").status_code == 404
    refused = create(http, start, "other", base_model="large")
    assert (refused.status_code, "base model 'tiny'" in refused.json()["detail"]) == (422, True)
    refused = create(http, start, "other", roles={"writer": {}})
    assert (refused.status_code, "it has: policy" in refused.json()["detail"]) == (422, True)


@pytest.mark.usefixtures("source")
def test_an_adapter_has_its_version_and_its_shape(http: httpx.Client) -> None:
    start = {"kind": "adapter", "run": "old", "version": 1}

    missing = create(http, start | {"version": 2})
    assert (missing.status_code, missing.json()["detail"]) == (404, "run 'old' has no version 2")
    shape = {**SPEC["algorithm"], "lora": {"rank": 4}}
    refused = create(http, start, algorithm=shape)
    assert (refused.status_code, "rank 8 and alpha 16" in refused.json()["detail"]) == (422, True)
    assert create(http, start | {"role": "policy"}, roles={"writer": {}, "checker": {}}).status_code == 201


def test_data_of_a_run_that_goes_on_is_refused(http: httpx.Client) -> None:
    create(http, None, "old")

    refused = create(http, {"kind": "sft", "run": "old"})

    assert refused.status_code == 409
    assert "seal it" in refused.json()["detail"]


def test_another_tenants_run_is_as_if_it_were_not_there(
    http: httpx.Client, store: LocalStore, signing_key: str
) -> None:
    def become(tenant: str) -> None:
        http.headers["Authorization"] = f"Bearer {Tokens(signing_key).mint(Scope.API, 60, tenant=tenant)}"

    become("theirs")
    assert create(http, None, "secret").status_code == 201
    put_adapter(store, "secret", 1)
    start = {"kind": "adapter", "run": "secret", "version": 1}
    become("ours")

    refused, unknown = create(http, start), create(http, start | {"run": "nobody"})

    assert (refused.status_code, unknown.status_code) == (404, 404)
    assert refused.json()["detail"].replace("secret", "nobody") == unknown.json()["detail"]
    become(ALL_TENANTS)
    assert create(http, start, tenant="ours").status_code == 404
    assert create(http, start, tenant="theirs").status_code == 201


def test_data_is_stored_once_and_never_changes(http: httpx.Client, store: LocalStore) -> None:
    create(http, {"kind": "sft"})
    assert http.get("/v1/runs/mine/start").json()["state"] == "waiting_for_data"

    first = http.put("/v1/runs/mine/start", content=jsonl(TALK, b"\n", PAIR | {"completion": "2"}), headers=LINES)

    assert (first.status_code, first.json()["state"], first.json()["lines"]) == (202, "under_way", 2)
    again = http.put("/v1/runs/mine/start", content=jsonl(TALK, PAIR | {"completion": "2"}), headers=LINES)
    assert (again.status_code, again.json()) == (202, first.json())
    other = http.put("/v1/runs/mine/start", content=jsonl(TALK), headers=LINES)
    assert (other.status_code, "never changes" in other.json()["detail"]) == (409, True)
    stored = read_start(store, "mine")
    assert stored is not None
    assert [json.loads(line) for line in start_lines(store, "mine", stored)] == [
        {"prompt": [], "completion": TALK["messages"]},
        {"prompt": "1 + 1 =", "completion": "2"},
    ]


def test_bad_lines_are_named_and_nothing_is_kept(http: httpx.Client, store: LocalStore) -> None:
    create(http, {"kind": "sft"})
    bad = jsonl(TALK, b"{broken\n", TALK, TALK | {"role": "boss"}, b"x" * (2**20 + 9) + b"\n")

    answer = http.put("/v1/runs/mine/start", content=bad, headers=LINES)

    assert (answer.status_code, answer.json()["title"]) == (422, "Invalid start data")
    broken, role, long = answer.json()["errors"]
    assert broken.startswith("line 2: not JSON")
    assert role == "line 4: role: 'boss' is none of this run's trained roles: policy"
    assert long == "line 5: longer than 1048576 bytes"
    assert not store.exists(start_key("mine"))


@pytest.mark.usefixtures("source")
def test_data_comes_only_where_it_is_wanted(http: httpx.Client) -> None:
    create(http, {"kind": "sft"})
    create(http, {"kind": "sft", "run": "old"}, "learns")
    create(http, None, "plain")

    def put(run: str, body: bytes, **headers: str) -> httpx.Response:
        return http.put(f"/v1/runs/{run}/start", content=body, headers={**LINES, **headers})

    assert put("mine", b"\n\n").json()["detail"] == "there is nothing in this upload to learn from"
    assert put("mine", b"x", **{"Content-Type": "text/csv"}).status_code == 415
    assert put("mine", b"x", **{"Content-Encoding": "gzip"}).status_code == 415
    assert (put("learns", jsonl(TALK)).status_code, put("plain", jsonl(TALK)).status_code) == (409, 409)
    assert (put("nobody", jsonl(TALK)).status_code, http.get("/v1/runs/plain/start").status_code) == (404, 404)
    http.post("/v1/runs/mine/cancel")
    assert put("mine", jsonl(TALK)).status_code == 409


async def test_where_it_came_from_is_told(http: httpx.Client, store: LocalStore) -> None:
    create(http, {"kind": "sft"})
    http.put("/v1/runs/mine/start", content=jsonl(TALK), headers=LINES)
    write_refusal(store, "mine", StartRefusal(reason="no chat template", created=0.0))
    assert http.get("/v1/runs/mine/start").json()["reason"] == "no chat template"

    for version in (1, 2):
        put_adapter(store, "mine", version)
    key = manifest_key("mine", "policy", 1)
    made = AdapterManifest.model_validate_json(store.get(key))
    origin = StartOrigin(kind="sft", digest="d", samples=1)
    store.put(key, made.model_copy(update={"start": origin}).model_dump_json().encode())

    shown = http.get("/v1/runs/mine/start").json()
    assert (shown["state"], shown["origin"]["samples"]) == ("done", 1)
    for version in (1, 2):
        lineage = http.get(f"/v1/runs/mine/versions/{version}").json()
        assert lineage["start"]["kind"] == "sft"
    assert http.get("/v1/runs/mine/versions/0").json()["start"] is None


def test_a_start_by_command(api: str, token: str, client: LeydenClient, tmp_path: Path) -> None:
    spec, data = tmp_path / "run.json", tmp_path / "start.jsonl"
    spec.write_text(json.dumps({**SPEC, "id": "mine", "start": {"kind": "dpo"}}))
    data.write_bytes(jsonl(PAIR))
    environment = {"LEYDEN_API_URL": api, "LEYDEN_API_TOKEN": token, "LEYDEN_DATA_DIR": str(tmp_path / "none")}

    made = CliRunner().invoke(app, ["run", "create", str(spec), "--start", str(data)], env=environment)
    shown = CliRunner().invoke(app, ["run", "start", "mine"], env=environment)

    assert (made.exit_code, made.stdout) == (0, "mine\n")
    assert json.loads(shown.stdout) == client.start("mine").model_dump(mode="json")
    assert (client.start("mine").state, client.start("mine").lines) == ("under_way", 1)
