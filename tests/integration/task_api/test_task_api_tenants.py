"""A tenant's token reaches the tenant's runs, and no others."""

from collections.abc import Iterator

import httpx
import pytest

from leyden_runtime.tokens import ALL_TENANTS, Scope, Tokens
from leyden_task_api.settings import TaskApiSettings
from support.task_api import SPEC, task_api


@pytest.fixture
def url(settings: TaskApiSettings) -> Iterator[str]:
    with task_api(settings) as url:
        yield url


@pytest.fixture
def of(url: str, signing_key: str) -> Iterator[object]:
    clients = []

    def client(tenant: str) -> httpx.Client:
        token = Tokens(signing_key).mint(Scope.API, 60, tenant=tenant)
        clients.append(httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


def test_a_run_belongs_to_whoever_made_it(of) -> None:
    ours, theirs = of("ours"), of("theirs")
    made = ours.post("/v1/runs", json={**SPEC, "id": "mine"})
    assert made.status_code == 201 and made.json()["spec"]["tenant"] == "ours"
    theirs.post("/v1/runs", json={**SPEC, "id": "other"})
    assert ours.post("/v1/runs", json={**SPEC, "id": "forged", "tenant": "theirs"}).status_code == 403
    assert [run["spec"]["id"] for run in ours.get("/v1/runs").json()["runs"]] == ["mine"]
    assert [run["spec"]["id"] for run in of(ALL_TENANTS).get("/v1/runs").json()["runs"]] == ["mine", "other"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/episodes"),
        ("GET", "/episodes/g.0"),
        ("POST", "/episodes/g.0/cancel"),
        ("GET", "/trajectories/g.0"),
        ("GET", "/adapters"),
        ("GET", "/adapters/1/adapter_model.safetensors"),
        ("GET", "/metrics"),
        ("GET", "/events"),
        ("POST", "/tasks"),
        ("POST", "/seal"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
    ],
)
def test_another_tenants_run_is_out_of_reach(of, method: str, path: str) -> None:
    of("ours").post("/v1/runs", json={**SPEC, "id": "mine"})
    answer = of("theirs").request(method, f"/v1/runs/mine{path}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 403, answer.text
    assert "tenant" in answer.json()["detail"]
    assert of("theirs").post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 409


def test_an_operators_token_reaches_all(of) -> None:
    of("ours").post("/v1/runs", json={**SPEC, "id": "mine"})
    assert of(ALL_TENANTS).get("/v1/runs/mine").status_code == 200
    assert of(ALL_TENANTS).post("/v1/runs", json={**SPEC, "id": "new", "tenant": "ours"}).status_code == 201
    assert of("ours").get("/v1/runs/new").status_code == 200


def test_a_token_for_calls_of_promoted_versions_does_not_open_the_api(url: str, signing_key: str) -> None:
    token = Tokens(signing_key).mint(Scope.USE, 60)
    answer = httpx.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 403
