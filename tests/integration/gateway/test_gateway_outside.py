"""Roles that an outside provider plays: recorded without tokens, never trained, with a key that no agent sees."""

import json

import openai
import pytest
from aiohttp import web

from support.gateway import Server, completion
from support.servers import find_port

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]
KEY = "provider-secret-key"
ROLES = {
    "writer": {"agents": ["Author"]},
    "judge": {"trained": False, "models": ["gpt-4o"], "outside": {"provider": "acme", "model": "acme-large"}},
}


class Provider(Server):
    """An OpenAI-compatible service."""

    def __init__(self) -> None:
        super().__init__(find_port())
        self.asked: list[tuple[dict, str]] = []
        self.answer: web.Response | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._chat)])
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = await request.json()
        self.asked.append((ask, request.headers["Authorization"]))
        if self.answer:
            return self.answer
        body = completion(ask)
        del body["prompt_token_ids"], body["choices"][0]["token_ids"], body["choices"][0]["logprobs"]
        return web.json_response(body)


@pytest.fixture
async def provider():
    provider = Provider()
    await provider.start()
    yield provider
    await provider.stop()


@pytest.fixture
async def client(world, provider):
    await world.make_run(roles=ROLES)
    await world.beat()
    providers = {"acme": {"url": f"{provider.url}/v1", "api_key": KEY}}
    return world.client(await world.gateway(providers=providers))


async def test_a_role_is_played_by_the_provider(world, client, provider):
    reply = await client.chat.completions.create(model="gpt-4o", messages=MESSAGES, temperature=0.2, seed=3)
    assert (reply.model, reply.choices[0].message.content) == ("gpt-4o", "the answer is 42")
    ((asked, authorization),) = provider.asked
    assert authorization == f"Bearer {KEY}"
    assert (asked["model"], asked["temperature"], asked["seed"]) == ("acme-large", 0.2, 3)
    assert "return_token_ids" not in asked
    (call,) = await world.collector.calls(1)
    assert (call.role, call.replica, call.number) == ("judge", "outside:acme", 1)
    assert (call.prompt_token_ids, call.response_token_ids, call.response_logprobs) == (b"", b"", b"")
    assert not world.engine.asked and await world.counted() == 1


async def test_its_replies_are_streamed_too(client):
    chunks = [c async for c in await client.chat.completions.create(model="judge", messages=MESSAGES, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "the answer is 42"


async def test_the_agents_own_telemetry_says_who_calls(world, client):
    headers = {"baggage": "user=7,gen_ai.agent.name=Author"}
    await client.chat.completions.create(model="gpt-4o", messages=MESSAGES, extra_headers=headers)
    await client.chat.completions.create(model="gpt-4o", messages=MESSAGES, extra_headers={"x-leyden-role": "writer"})
    assert [call.role for call in await world.collector.calls(2)] == ["writer", "writer"]


@pytest.mark.parametrize(
    ("status", "seen", "code"), [(400, 400, "provider_refused"), (401, 502, "provider_refused"), (500, 500, None)]
)
async def test_its_errors_pass_through_without_the_key(client, provider, status, seen, code):
    provider.answer = web.Response(status=status, text=json.dumps({"error": {"message": "no such luck"}}))
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(model="judge", messages=MESSAGES)
    assert caught.value.status_code == seen
    assert code is None or caught.value.code == code
    assert KEY not in caught.value.response.text


async def test_a_provider_that_is_away_or_unknown(world, provider):
    await world.make_run(roles=ROLES)
    known = {"other": {"url": f"{provider.url}/v1", "api_key": KEY}}
    with pytest.raises(openai.NotFoundError, match="no provider `acme`; it has `other`"):
        await world.client(await world.gateway(providers=known)).chat.completions.create(
            model="judge", messages=MESSAGES
        )
    await provider.stop()
    gone = {"acme": {"url": f"{provider.url}/v1", "api_key": KEY}}
    with pytest.raises(openai.InternalServerError) as caught:
        await world.client(await world.gateway(providers=gone)).chat.completions.create(
            model="judge", messages=MESSAGES
        )
    assert caught.value.status_code == 502
    assert not world.collector.spans


@pytest.mark.parametrize(
    "role",
    [
        {"outside": {"provider": "acme", "model": "m"}},
        {"trained": False, "outside": {"provider": "../acme", "model": "m"}},
        {"trained": False, "outside": {"provider": "acme"}},
    ],
)
async def test_a_run_that_cannot_be(world, role):
    with pytest.raises(ValueError, match="outside"):
        await world.make_run(roles={"policy": {}, "judge": role})
