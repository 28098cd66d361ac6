"""Ollama's own clients at the gateway, before the embedded engine; each call is recorded as the engine logged it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import ollama
import pytest

from leyden_gateway.protocols.ollama_models import UNSUPPORTED
from support.gateway import Gateway, World, completion
from support.taught_engine import ARGUMENTS, BEFORE, QUESTION, SCHEMA, TaughtEngine, before, exact, taught_engine

ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}
ASKED = [{"role": "user", "content": QUESTION}]
SHORT = {"num_predict": 7}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaughtEngine]:
    with taught_engine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture
async def placed(real, ledger, redis_url, signing_key) -> AsyncIterator[tuple[World, Gateway]]:
    async with before(real, ledger, redis_url, signing_key) as placed:
        yield placed


@pytest.fixture
def world(placed: tuple[World, Gateway]) -> World:
    return placed[0]


@pytest.fixture
def client(placed: tuple[World, Gateway], monkeypatch: pytest.MonkeyPatch) -> ollama.AsyncClient:
    """Made from the environment alone, as an agent's is."""
    world, gateway = placed
    monkeypatch.setenv("OLLAMA_HOST", gateway.url)
    monkeypatch.setenv("OLLAMA_API_KEY", world.token())
    return ollama.AsyncClient()


def other(gateway: Gateway, token: str) -> ollama.AsyncClient:
    return ollama.AsyncClient(gateway.url, headers={"Authorization": f"Bearer {token}"})


async def refused(work) -> ollama.ResponseError:
    with pytest.raises(ollama.ResponseError) as caught:
        await work
    return caught.value


async def test_a_chat(client, world, real):
    reply = await client.chat("policy", ASKED, options={**SHORT, "num_ctx": 100, "seed": 1}, keep_alive="5m")
    (call,) = await exact(world, real, 1)
    assert (reply.model, reply.message.role, reply.done, reply.done_reason) == ("policy", "assistant", True, "length")
    assert reply.message.content and reply.created_at.endswith("Z")
    assert (reply.prompt_eval_count, reply.eval_count) == (len(call.prompt_token_ids) // 4, 7)
    assert 0 < reply.total_duration < 60e9
    assert reply.eval_duration is None


async def test_a_chat_with_the_sync_client(client, world, real):
    reply = await asyncio.to_thread(ollama.Client().chat, "policy", ASKED)
    assert reply.done_reason == "stop"
    await exact(world, real, 1)


async def test_a_stream_says_what_the_whole_reply_says(client, world, real):
    whole = await client.chat("policy", ASKED, options=SHORT)
    parts = [part async for part in await client.chat("policy", ASKED, options=SHORT, stream=True)]
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert len(parts) >= 2
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("length", 7)
    await exact(world, real, 2)


async def test_a_stream_with_the_sync_client(client, world, real):
    parts = await asyncio.to_thread(lambda: list(ollama.Client().chat("policy", ASKED, stream=True)))
    assert parts[-1].done
    await exact(world, real, 1)


async def test_streams_are_the_default_and_lines_of_json(client, placed, world, real):
    headers = {"Authorization": f"Bearer {world.token()}"}
    async with httpx.AsyncClient(base_url=placed[1].url, headers=headers) as http:
        answer = await http.post("/api/chat", json={"model": "policy:latest", "messages": ASKED})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    await exact(world, real, 1)


async def test_a_tool_is_called_and_its_result_read(client, world, real):
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    for stream in (False, True):
        answer = await client.chat("policy", ASKED, tools=[add], stream=stream)
        parts = [part async for part in answer] if stream else [answer]
        (call,) = [call for part in parts for call in part.message.tool_calls or []]
        assert (call.function.name, call.function.arguments) == ("add", ARGUMENTS)
        assert "".join(part.message.content for part in parts) == BEFORE
        assert parts[-1].done_reason == "stop"
    said = {"role": "assistant", "content": BEFORE, "tool_calls": [call]}
    result = {"role": "tool", "tool_name": "add", "content": "95"}
    await client.chat("policy", [*ASKED, said, result], tools=[add], options=SHORT)
    await exact(world, real, 3)


async def test_logprobs_are_shown_on_demand(client, world, real):
    whole = await client.chat("policy", ASKED, logprobs=True, options=SHORT)
    parts = [part async for part in await client.chat("policy", ASKED, logprobs=True, options=SHORT, stream=True)]
    shown = [one for part in parts for one in part.logprobs or []]
    assert len(whole.logprobs) == len(shown) == 7
    assert all(one.logprob <= 0 for one in [*whole.logprobs, *shown])
    await exact(world, real, 2)


async def test_generate(client, world, real):
    reply = await client.generate("policy", QUESTION, system="Add.", options=SHORT)
    assert reply.response and (reply.done_reason, reply.eval_count) == ("length", 7)
    parts = [part async for part in await client.generate("policy", QUESTION, system="Add.", stream=True)]
    assert parts[-1].done and "".join(part.response for part in parts)
    blocking = await asyncio.to_thread(ollama.Client().generate, "policy", QUESTION)
    assert blocking.done
    await exact(world, real, 3)


async def test_a_raw_prompt_is_the_very_prompt(client, world, real):
    reply = await client.generate("policy", "7+8=", raw=True, options=SHORT)
    parts = [part async for part in await client.generate("policy", "7+8=", raw=True, options=SHORT, stream=True)]
    assert reply.prompt_eval_count == parts[-1].prompt_eval_count <= 4
    assert parts[-1].eval_count == 7
    await exact(world, real, 2)
    assert "template" in (await refused(client.generate("policy", "hi", template="{{ .Prompt }}"))).error


async def test_models_are_listed_and_shown(client, world):
    assert [model.model for model in (await client.list()).models] == ["policy", "policy/policy"]
    assert (await asyncio.to_thread(ollama.Client().list)).models[0].model == "policy"
    shown = await client.show("policy")
    assert (shown.details.parent_model, shown.capabilities) == ("tiny", ["completion", "tools"])
    assert (await refused(client.show("llama3"))).status_code == 404


async def test_errors_are_worded_as_ollamas(client, world, placed):
    gateway = placed[1]
    error = await refused(other(gateway, "forged").chat("policy", ASKED))
    assert error.status_code == 401 and "token" in error.error
    error = await refused(other(gateway, world.token(attempt=7)).chat("policy", ASKED))
    assert error.status_code == 409
    error = await refused(client.chat("llama3", ASKED))
    assert error.status_code == 404 and "`policy`" in error.error
    error = await refused(client.chat("policy", [{"role": "user", "content": "7" * 2000}]))
    assert error.status_code == 400 and "256" in error.error
    error = await refused(client.chat("policy", [{"role": "user", "content": "?", "images": [b"\x89PNG"]}]))
    assert error.status_code == 400 and "images" in error.error
    error = await refused(client.chat("policy", ASKED, options={"mirostat": 2}))
    assert error.status_code == 400 and "mirostat" in error.error
    assert await world.counted() == 0


async def test_what_ollama_does_to_models_is_refused_in_its_words(client, world, placed):
    assert (await refused(client.embed("policy", "hi"))).status_code == 501
    assert (await refused(client.pull("llama3"))).status_code == 501
    assert (await refused(client.delete("policy"))).status_code == 501
    headers = {"Authorization": f"Bearer {world.token()}"}
    async with httpx.AsyncClient(base_url=placed[1].url, headers=headers) as http:
        for name in UNSUPPORTED:
            answer = await http.post(f"/api/{name}", json={})
            assert (answer.status_code, set(answer.json())) == (501, {"error"})
        assert set((await http.post("/api/nothing", json={})).json()) == {"error"}
        assert (await http.get("/api/version")).json()["version"]


async def test_a_stream_that_breaks_ends_with_an_error(client, world):
    await world.engine.start()
    try:
        await world.beat(url=world.engine.url)
        await asyncio.sleep(0.2)
        world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, completion(ask), 2))
        with pytest.raises(ollama.ResponseError, match="went away"):
            [part async for part in await client.chat("policy", ASKED, stream=True)]
    finally:
        await world.engine.stop()


@pytest.mark.parametrize("form", ["json", SCHEMA])
async def test_a_format_is_asked_of_the_replica(client, world, form):
    await world.engine.start()
    try:
        await world.beat(url=world.engine.url)
        await asyncio.sleep(0.2)
        await client.chat("policy", ASKED, format=form)
        schema = {"type": "json_schema", "json_schema": {"name": "format", "schema": SCHEMA}}
        (ask,) = world.engine.asked
        assert ask["response_format"] == ({"type": "json_object"} if form == "json" else schema)
    finally:
        await world.engine.stop()


async def test_the_same_conversation_makes_the_same_prompt_as_chat(client, world, real, placed):
    """With a system prompt, a tool call and its result."""
    chat = world.client(placed[1])
    head = [{"role": "system", "content": "Add."}, *ASKED]
    tail = {"role": "user", "content": "So?"}
    use = {"function": {"name": "add", "arguments": ARGUMENTS}}
    said = {"role": "assistant", "content": "Wait.", "tool_calls": [use]}
    result = {"role": "tool", "content": "95", "tool_name": "add"}
    await client.chat("policy", [*head, said, result, tail], tools=[ADD], options=SHORT)
    function = {"name": "add", "arguments": json.dumps(ARGUMENTS)}
    said = {**said, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    result = {"role": "tool", "content": "95", "tool_call_id": "call_1"}
    await chat.chat.completions.create(model="policy", max_tokens=5, messages=[*head, said, result, tail], tools=[ADD])
    await client.generate("policy", QUESTION, system="Add.", options=SHORT)
    await chat.chat.completions.create(model="policy", max_tokens=5, messages=head)
    prompts = [call.prompt_token_ids for call in await exact(world, real, 4)]
    assert (prompts[0], prompts[2]) == (prompts[1], prompts[3])
