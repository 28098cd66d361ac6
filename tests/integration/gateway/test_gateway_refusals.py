"""What the gateway refuses, with which status, and that nothing refused is counted or recorded."""

import asyncio

import httpx
import openai
import pytest
from aiohttp import web

from leyden_contracts import AttemptResult, FailureReason
from leyden_runtime.tokens import CLOCK_SKEW_S, Scope, Tokens

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]


async def ask(client: openai.AsyncOpenAI, **changes: object) -> object:
    return await client.chat.completions.create(**{"model": "policy", "messages": MESSAGES, **changes})


async def refusal(client: openai.AsyncOpenAI, **changes: object) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        await ask(client, **changes)
    assert {"message", "type", "code"} <= set(caught.value.body), "OpenAI's shape"
    return caught.value


@pytest.fixture
async def gateway(world):
    await world.make_run(episodes={"max_calls": 2})
    await world.beat()
    yield await world.gateway(max_body_bytes=4096)
    await asyncio.sleep(0.1)
    assert len(world.collector.spans) == len(world.engine.answered)


async def test_a_fenced_attempt(world, gateway):
    client = world.client(gateway)
    await ask(client)
    lost = AttemptResult(outcome="failed", reason=FailureReason.WORKER_LOST)
    assert await world.ledger.episodes.close("run-1", "g.0", 1, lost)
    error = await refusal(client)
    assert (error.status_code, error.code) == (409, "attempt_fenced")
    assert error.response.headers["x-should-retry"] == "false"
    # Its permit was kept for a moment: the replica was asked, and its answer refused at the door, uncounted.
    world.engine.answered.pop()
    assert (await refusal(client)).status_code == 409
    assert len(world.engine.asked) == 2, "a permit that proved out of date is not kept"


async def test_an_attempt_that_is_fenced_while_the_engine_works(world, gateway):
    async def slow(_, ask):
        lost = AttemptResult(outcome="failed", reason=FailureReason.WORKER_LOST)
        await world.ledger.episodes.close("run-1", "g.0", 1, lost)
        return web.json_response(reply_for(ask))

    world.engine.misbehave.append(slow)
    assert (await refusal(world.client(gateway))).status_code == 409
    assert await world.counted() == 0


def reply_for(ask: dict) -> dict:
    message = {"role": "assistant", "content": "x"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": [1]}
    choice["logprobs"] = {"content": [{"logprob": -1.0}]}
    reply = {"id": "c", "created": 1, "choices": [choice], "prompt_token_ids": [1], "model": ask["model"]}
    return {**reply, "usage": {"completion_tokens": 1}}


async def test_too_many_calls(world, gateway):
    client = world.client(gateway)
    for _ in range(2):
        await ask(client)
    error = await refusal(client)
    assert (error.status_code, error.code) == (429, "too_many_calls")
    assert await world.counted() == 2
    world.engine.answered.pop()


async def test_an_expired_token(world, gateway):
    assert (await refusal(world.client(gateway, world.token(ttl_s=-CLOCK_SKEW_S - 5)))).status_code == 401


async def test_a_token_signed_by_somebody_else(world, gateway):
    forged = Tokens("x" * 40).mint(Scope.ATTEMPT, 60, run="run-1", episode="g.0", attempt=1)
    assert (await refusal(world.client(gateway, forged))).status_code == 401


async def test_no_token(gateway):
    async with httpx.AsyncClient(base_url=gateway.url) as http:
        answer = await http.post("/v1/chat/completions", json={"model": "policy", "messages": MESSAGES})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("scope", [Scope.API, Scope.SPANS])
async def test_a_token_of_another_scope(world, gateway, scope):
    assert (await refusal(world.client(gateway, world.token(scope=scope)))).status_code == 403


async def test_a_token_that_names_no_attempt(world, gateway):
    assert (await refusal(world.client(gateway, world.tokens.mint(Scope.ATTEMPT, 60)))).status_code == 403


async def test_another_attempts_token(world, gateway):
    assert (await refusal(world.client(gateway, world.token(attempt=2)))).status_code == 409


async def test_an_unknown_episode(world, gateway):
    token = world.tokens.mint(Scope.ATTEMPT, 60, run="run-1", episode="nobody.0", attempt=1)
    assert (await refusal(world.client(gateway, token))).status_code == 404


async def test_an_unknown_run(world, gateway):
    token = world.tokens.mint(Scope.ATTEMPT, 60, run="nowhere", episode="g.0", attempt=1)
    error = await refusal(world.client(gateway, token))
    assert (error.status_code, error.code) == (404, "run_not_found")


@pytest.mark.parametrize("model", ["gpt-4o", "tiny", ""])
async def test_an_unknown_model_lists_those_there_are(world, gateway, model):
    error = await refusal(world.client(gateway), model=model)
    assert (error.status_code, error.code) == (404, "model_not_found")
    assert "`policy`, `policy/policy`" in error.message


async def test_a_body_that_is_too_large(world, gateway):
    huge = [{"role": "user", "content": "x" * 5000}]
    error = await refusal(world.client(gateway), messages=huge)
    assert (error.status_code, error.code) == (413, "request_too_large")
    assert (await ask(world.client(gateway))).choices[0].message.content


@pytest.mark.parametrize("n", [0, -1, 17])
async def test_too_many_samples_at_once(world, gateway, n):
    error = await refusal(world.client(gateway), n=n)
    assert error.status_code == 400
    assert "`n` must be from 1 to 16" in error.message


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"[1]", "JSON"),
        (b'{"model": "policy"', "JSON"),
        (b'{"model": "policy"}', "messages"),
        (b'{"messages": []}', "model"),
        (b'{"model": 7, "messages": []}', "model"),
        (b'{"model": "policy", "messages": [], "max_tokens": 0}', "max_tokens"),
        (b'{"model": "policy", "messages": [], "max_tokens": "9"}', "max_tokens"),
        (b'{"model": "policy", "messages": [], "stream": "yes"}', "stream"),
        (b'{"model": "policy", "messages": [], "n": []}', "`n`"),
    ],
)
async def test_a_broken_body_is_named(world, gateway, body, named):
    headers = {"Authorization": f"Bearer {world.token()}"}
    async with httpx.AsyncClient(base_url=gateway.url, headers=headers) as http:
        answer = await http.post("/v1/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert named in answer.json()["error"]["message"]


async def test_an_unknown_path_and_method(world, gateway):
    async with httpx.AsyncClient(base_url=gateway.url) as http:
        unknown = await http.post("/v1/embeddings", json={})
        method = await http.get("/v1/chat/completions")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert method.status_code == 405


async def test_the_engines_own_refusal_reaches_the_agent(world, gateway):
    async def too_long(_, __):
        return web.json_response({"error": {"message": "maximum context length is 1024 tokens"}}, status=400)

    world.engine.misbehave.append(too_long)
    error = await refusal(world.client(gateway))
    assert (error.status_code, error.code) == (400, "upstream_refused")
    assert "maximum context length" in error.message
    assert await world.counted() == 0
