"""Runs over real HTTP and real Redis: created once, never changed; every error is a problem that says what to do."""

import http.client as http_client
import json

import httpx
import pytest

from leyden_contracts import RunSpec
from leyden_ledger import Ledger
from leyden_runtime.tokens import CLOCK_SKEW_S, Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.keys import run_key
from support.task_api import SPEC


def problem(response: httpx.Response, status: int) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == status and found["detail"]
    return found


async def test_a_run_is_in_the_store_and_in_the_ledger(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    answer = http.post("/v1/runs", json=SPEC)
    assert answer.status_code == 201
    run = answer.json()["spec"]["id"]
    expected = RunSpec.model_validate({**SPEC, "id": run})
    assert RunSpec.model_validate_json(store.get(run_key(run))) == expected == await ledger.runs.get(run)
    assert answer.json()["summary"]["state"] == "open"
    assert http.get(f"/v1/runs/{run}").json() == answer.json()


def test_the_same_run_twice_is_one_and_another_under_its_id_is_refused(http: httpx.Client) -> None:
    assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201
    assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 200
    refusal = problem(http.post("/v1/runs", json={**SPEC, "id": "mine", "seed": 1}), 409)
    assert "mine" in refusal["detail"]
    assert http.get("/v1/runs/mine").json()["spec"]["seed"] == 0


async def test_a_run_whose_creation_broke_off_after_the_store_is_completed_by_a_retry(
    http: httpx.Client, ledger: Ledger, store: LocalStore
) -> None:
    store.create(run_key("mine"), RunSpec.model_validate({**SPEC, "id": "mine"}).model_dump_json().encode())
    problem(http.get("/v1/runs/mine"), 404)
    assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201
    assert await ledger.runs.list() == ["mine"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"algorithm": {"steps": 3}}, "algorithm.steps: Extra inputs are not permitted"),
        ({"group_size": 0}, "group_size: Input should be greater than or equal to 1"),
        ({"agent": "no colon"}, "agent: String should match pattern"),
        ({"id": "../etc"}, "id: String should match pattern"),
        ({"group_size": 1}, "`advantage: grpo` needs 2 episodes of a task: set `group_size` to that or more"),
    ],
)
def test_a_wrong_specification_is_refused_with_the_place_and_the_remedy(
    http: httpx.Client, store: LocalStore, change: dict, line: str
) -> None:
    refusal = problem(http.post("/v1/runs", json={**SPEC, **change}), 422)
    assert any(line in error for error in refusal["errors"]), refusal
    assert list(store.list("runs/")) == []


def test_broken_json_is_a_problem(http: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    problem(http.post("/v1/runs", content=b'{"agent": ', headers=headers), 422)


def test_what_does_not_exist_or_is_not_allowed_is_a_problem(http: httpx.Client) -> None:
    for path in ("/v1/nothing", "/v1/runs/absent", "/v1/runs/absent/episodes", "/v1/runs/absent/metrics"):
        problem(http.get(path), 404)
    problem(http.post("/v1/runs/absent/seal"), 404)
    assert problem(http.delete("/v1/runs"), 405)["title"] == "Method Not Allowed"
    problem(http.get("/v1/runs/NOT-AN-ID"), 422)


def test_a_body_over_the_limit_is_refused_with_or_without_its_length(http: httpx.Client) -> None:
    body = json.dumps({**SPEC, "agent": "a" * 9_000_000}).encode()
    headers = {"Content-Type": "application/json"}
    problem(http.post("/v1/runs", content=body, headers=headers), 413)
    problem(http.post("/v1/runs", content=iter([body[:5_000_000], body[5_000_000:]]), headers=headers), 413)


def test_a_body_announced_as_too_large_is_refused_before_it_is_sent(api: str, token: str) -> None:
    connection = http_client.HTTPConnection(api.removeprefix("http://"), timeout=5)
    connection.putrequest("POST", "/v1/runs")
    for header in (
        ("Authorization", f"Bearer {token}"),
        ("Content-Type", "application/json"),
        ("Content-Length", "9000000"),
    ):
        connection.putheader(*header)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_tokens(api: str, signing_key: str) -> None:
    tokens = Tokens(signing_key)

    def get(token: str, path: str = "/v1/runs") -> httpx.Response:
        return httpx.get(api + path, headers={"Authorization": f"Bearer {token}"})

    assert problem(httpx.get(api + "/v1/runs"), 401)
    assert httpx.get(api + "/v1/runs").headers["www-authenticate"] == "Bearer"
    problem(get("nonsense"), 401)
    problem(get(Tokens("x" * 40).mint(Scope.API, 60)), 401)
    problem(get(tokens.mint(Scope.API, -CLOCK_SKEW_S - 10)), 401)
    for scope in (Scope.ATTEMPT, Scope.SPANS):
        problem(get(tokens.mint(scope, 60)), 403)
    assert get(tokens.mint(Scope.API, 60)).status_code == 200


def test_a_token_for_one_run_reads_and_writes_no_other(http: httpx.Client, api: str, signing_key: str) -> None:
    for run in ("mine", "mine-2"):
        http.post("/v1/runs", json={**SPEC, "id": run})
    token = Tokens(signing_key).mint(Scope.API, 60, run="mine")
    with httpx.Client(base_url=api, headers={"Authorization": f"Bearer {token}"}) as limited:
        assert limited.get("/v1/runs/mine").status_code == 200
        for path in (
            "/v1/runs/mine-2",
            "/v1/runs/mine-2/episodes",
            "/v1/runs",
            "/v1/runs/mine/../mine-2",
            "/v1/replicas",
        ):
            problem(limited.get(path), 403)
        problem(limited.post("/v1/runs", json=SPEC), 403)
        problem(limited.post("/v1/runs/mine-2/seal"), 403)


def test_health_metrics_and_the_document_need_no_token(api: str) -> None:
    for path in ("/healthz", "/metrics", "/openapi.json", "/docs"):
        assert httpx.get(api + path).status_code == 200
    document = httpx.get(api + "/openapi.json").json()
    body = document["paths"]["/v1/runs/{run}/tasks"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-ndjson"}
    assert {"TaskInput", "RunSpec", "Problem"} <= set(document["components"]["schemas"])


def test_requests_are_counted_by_route_and_status(http: httpx.Client) -> None:
    http.post("/v1/runs", json={**SPEC, "id": "mine"})
    http.get("/v1/runs/mine")
    http.get("/v1/runs/absent")
    text = http.get("/metrics").text
    assert 'leyden_task_api_requests_total{method="GET",route="/v1/runs/{run}",status="404"}' in text
    assert 'leyden_task_api_requests_total{method="POST",route="/v1/runs",status="201"}' in text
    assert "absent" not in text


def test_runs_are_listed_page_by_page(http: httpx.Client) -> None:
    for number in range(5):
        http.post("/v1/runs", json={**SPEC, "id": f"run-{number}"})
    first = http.get("/v1/runs", params={"count": 3}).json()
    rest = http.get("/v1/runs", params={"count": 3, "start": first["next"]}).json()
    assert [view["spec"]["id"] for view in first["runs"] + rest["runs"]] == [f"run-{n}" for n in range(5)]
    assert rest["next"] is None


def test_sealing_can_be_repeated(http: httpx.Client) -> None:
    http.post("/v1/runs", json={**SPEC, "id": "mine"})
    for _ in range(2):
        answer = http.post("/v1/runs/mine/seal")
        assert answer.status_code == 200 and answer.json()["summary"]["state"] == "sealed"
