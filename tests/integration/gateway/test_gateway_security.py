"""What an agent's token cannot do, and how each protocol says so."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import jwt
import pytest

from leyden_runtime.tokens import Scope, Tokens
from leyden_task_api.settings import TaskApiSettings
from support.gateway import EPISODE, RUN, Gateway, World
from support.task_api import task_api

ASKED = [{"role": "user", "content": "How much is 1+2?"}]
BODIES = {
    "/v1/chat/completions": {"messages": ASKED},
    "/v1/completions": {"prompt": "How much is 1+2?"},
    "/v1/responses": {"input": "How much is 1+2?"},
    "/v1/messages": {"messages": ASKED, "max_tokens": 5},
    "/v1/messages/count_tokens": {"messages": ASKED},
    "/api/chat": {"messages": ASKED, "stream": False},
    "/api/generate": {"prompt": "How much is 1+2?", "stream": False},
}
each_path = pytest.mark.parametrize("path", BODIES)


@pytest.fixture
async def gateway(world: World) -> Gateway:
    await world.make_run()
    await world.beat()
    return await world.gateway(max_body_bytes=2048)


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        yield http


async def ask(http: httpx.AsyncClient, path: str, token: str, model: str = "policy", **more: object) -> httpx.Response:
    body = {"model": model, **BODIES[path], **more}
    return await http.post(path, json=body, headers={"Authorization": f"Bearer {token}"})


def refusal(answer: httpx.Response, status: int) -> str:
    """Check status and format of an error; return its message."""
    assert answer.status_code == status, answer.text
    body, path = answer.json(), answer.request.url.path
    if path.startswith("/api/"):
        assert set(body) == {"error"}
        return body["error"]
    if path.startswith("/v1/messages"):
        assert set(body) == {"type", "error"} and body["type"] == "error"
        assert set(body["error"]) == {"type", "message"}
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["message"]


async def untouched(world: World) -> bool:
    return not world.engine.asked and not world.collector.spans and await world.counted() == 0


@each_path
async def test_a_token_signed_by_somebody_else_is_refused(world, http, path):
    foreign = Tokens("another-signing-key-of-more-than-32-characters")
    token = foreign.mint(Scope.ATTEMPT, 60, run=RUN, episode=EPISODE, attempt=1)
    assert "token" in refusal(await ask(http, path, token), 401)
    assert await untouched(world)


@each_path
async def test_a_token_whose_claims_were_changed_is_refused(world, http, path):
    head, body, signature = world.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    changed = base64.urlsafe_b64encode(json.dumps({**claims, "attempt": 2}).encode()).decode().rstrip("=")
    refusal(await ask(http, path, f"{head}.{changed}.{signature}"), 401)
    unsigned = jwt.encode({**claims, "attempt": 2}, None, algorithm="none")
    refusal(await ask(http, path, unsigned), 401)
    assert await untouched(world)


@each_path
async def test_an_expired_token_is_refused(world, http, path):
    assert "expired" in refusal(await ask(http, path, world.token(ttl_s=-3 * 3600)), 401)
    assert await untouched(world)


@each_path
async def test_no_token_is_refused(world, http, path):
    refusal(await http.post(path, json={"model": "policy", **BODIES[path]}), 401)
    assert await untouched(world)


@each_path
@pytest.mark.parametrize("scope", [Scope.API, Scope.SPANS])
async def test_another_scopes_token_is_refused(world, http, path, scope):
    refusal(await ask(http, path, world.token(scope=scope)), 403)
    assert await untouched(world)


@each_path
async def test_the_token_of_a_stale_attempt_is_fenced(world, http, path):
    assert await world.ledger.episodes.give_back(RUN, EPISODE, 1)
    claim = await world.ledger.episodes.claim(RUN, EPISODE, "w2", 60)
    assert claim and claim.attempt == 2
    for attempt in (1, 3):
        refusal(await ask(http, path, world.token(attempt=attempt)), 409)
    assert await untouched(world)


@each_path
async def test_the_token_of_a_cancelled_episode_is_revoked(world, http, path):
    assert await world.ledger.episodes.cancel(RUN, EPISODE)
    refusal(await ask(http, path, world.token()), 409)
    assert await untouched(world)


async def test_the_claims_decide_whose_call_it_is(world, http):
    """An agent that gives itself out as its neighbour, in all it can send, is still itself."""
    assert await world.ledger.episodes.claim(RUN, "g.1", "w", 60)
    headers = {
        "Authorization": f"Bearer {world.token()}",
        "x-leyden-run": "other",
        "x-leyden-episode": "g.1",
        "baggage": "leyden.episode=g.1",
        "traceparent": f"00-{'1' * 32}-{'2' * 16}-01",
    }
    body = {"model": "policy", **BODIES["/v1/messages"], "metadata": {"user_id": "g.1"}}
    assert (await http.post("/v1/messages?episode=g.1", json=body, headers=headers)).status_code == 200
    (call,) = await world.collector.calls(1)
    assert (call.run, call.episode, call.attempt) == (RUN, EPISODE, 1)
    assert not world.collector.spans[0].parent_span_id
    assert (await world.ledger.episodes.get(RUN, "g.1")).calls == 0


@each_path
@pytest.mark.parametrize("name", ["..", "../../etc/passwd", "policy/../policy", "a/b", "/", "tiny", "", "x" * 500])
async def test_a_models_name_is_never_a_path(world, http, path, name):
    answer = await ask(http, path, world.token(), model=name)
    assert answer.status_code in (400, 404)
    refusal(answer, answer.status_code)
    assert await untouched(world)


@pytest.mark.parametrize("name", ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "policy%2F..%2Fpolicy"])
async def test_a_listed_models_name_is_never_a_path(world, http, name):
    headers = {"Authorization": f"Bearer {world.token()}"}
    for more in ({}, {"anthropic-version": "2023-06-01"}):
        answer = await http.get(f"/v1/models/{name}", headers={**headers, **more})
        assert answer.status_code == 404 and "error" in answer.json()


@each_path
async def test_a_body_that_is_too_large_is_refused(world, http, path):
    answer = await ask(http, path, world.token(), padding="x" * 5000)
    assert "too large" in refusal(answer, 413)
    assert await untouched(world)


@each_path
async def test_a_body_that_is_no_json_is_refused(world, http, path):
    answer = await http.post(path, content=b"{", headers={"Authorization": f"Bearer {world.token()}"})
    refusal(answer, 400)
    assert await untouched(world)


@pytest.fixture
def api(gateway: Gateway, redis_url: str, tmp_path: Path, signing_key: str) -> Iterator[str]:
    """A task API on the same ledger."""
    values = {"redis_url": redis_url, "store_url": f"file://{tmp_path}/store", "signing_key": signing_key}
    with task_api(TaskApiSettings.model_validate(values)) as url:
        yield url


def problem(api: str, world: World, method: str, path: str, status: int, **more: object) -> None:
    headers = {"Authorization": f"Bearer {world.token()}"}
    answer = httpx.request(method, api + path, headers=headers, **more)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status and answer.json()["title"]


def test_an_agent_cannot_write_its_reward(api, world):
    for path in (f"/v1/runs/{RUN}/episodes/{EPISODE}", f"/v1/runs/{RUN}/trajectories/{EPISODE}"):
        for method in ("PUT", "POST", "PATCH"):
            problem(api, world, method, path, 403, json={"reward": 1.0})
    problem(api, world, "POST", f"/v1/runs/{RUN}/episodes/{EPISODE}/reward", 403, json={"reward": 1.0})


def test_an_agent_cannot_register_a_replica(api, world):
    problem(api, world, "POST", "/v1/replicas", 403, json={"id": "mine", "url": "http://mine", "base_model": "tiny"})
    problem(api, world, "GET", "/v1/replicas", 403)


def test_an_agent_cannot_read_a_trajectory(api, world):
    problem(api, world, "GET", f"/v1/runs/{RUN}/trajectories/{EPISODE}", 403)


def test_an_agent_cannot_list_episodes_or_add_tasks(api, world):
    problem(api, world, "GET", f"/v1/runs/{RUN}/episodes", 403)
    problem(api, world, "POST", f"/v1/runs/{RUN}/tasks", 403, content=b'{"input": 1}\n')


@pytest.mark.parametrize("what", ["cancel", "pause", "resume", "seal", "promote", "rollback"])
def test_an_agent_cannot_steer_its_run(api, world, what):
    problem(api, world, "POST", f"/v1/runs/{RUN}/{what}", 403, json={"version": 1})


@pytest.mark.parametrize("path", ["/v1/replicas", f"/v1/runs/{RUN}/tasks", f"/v1/runs/{RUN}/trajectories/{EPISODE}"])
async def test_the_gateway_has_none_of_it(world, http, path):
    for method in ("GET", "POST", "PUT"):
        answer = await http.request(method, path, headers={"Authorization": f"Bearer {world.token()}"}, json={})
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found"
