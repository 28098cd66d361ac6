"""Anthropic's own clients at the gateway, before the embedded engine; each call is recorded as the engine logged it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import anthropic
import httpx
import pytest

from support.gateway import EPISODE, RUN, Gateway, World, completion
from support.taught_engine import ARGUMENTS, BEFORE, QUESTION, SCHEMA, TaughtEngine, before, exact, taught_engine

ADD = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
ASKED = [{"role": "user", "content": QUESTION}]
ASK = {"model": "policy", "max_tokens": 60, "messages": ASKED}


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
async def client(placed: tuple[World, Gateway]) -> AsyncIterator[anthropic.AsyncAnthropic]:
    world, gateway = placed
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=world.token(), max_retries=0) as client:
        yield client


def sync(client: anthropic.AsyncAnthropic, **more: object) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=str(client.base_url), api_key=client.api_key, max_retries=0, **more)


async def test_a_message(client, world, real):
    message = await client.messages.create(**{**ASK, "max_tokens": 7}, system="Add.", metadata={"user_id": "u"})
    (call,) = await exact(world, real, 1)
    assert (message.id, message.role, message.model) == (call.response_id, "assistant", "policy")
    assert message.content[0].type == "text" and message.content[0].text
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    lengths = len(call.prompt_token_ids) // 4, len(call.response_token_ids) // 4
    assert (message.usage.input_tokens, message.usage.output_tokens) == lengths == (lengths[0], 7)


async def test_a_message_with_the_sync_client(client, world, real):
    with sync(client) as blocking:
        message = await asyncio.to_thread(blocking.messages.create, **ASK)
    assert [call.response_id for call in await exact(world, real, 1)] == [message.id]


async def test_a_tool_is_called_and_its_result_read(client, world, real):
    first = await client.messages.create(**ASK, tools=[ADD])
    text, use = first.content
    assert (text.text, use.name, use.input) == (BEFORE, "add", ARGUMENTS)
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "95"}]}
    turns = [*ASKED, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    await client.messages.create(**{**ASK, "messages": turns}, tools=[ADD])
    await exact(world, real, 2)


async def test_a_tool_is_called_in_a_stream(client, world, real):
    async with client.messages.stream(**ASK, tools=[ADD]) as stream:
        kinds = [event.type async for event in stream]
        message = await stream.get_final_message()
    text, use = message.content
    assert (text.text, use.input, message.stop_reason) == (BEFORE, ARGUMENTS, "tool_use")
    assert {"text", "input_json", "content_block_stop"} <= set(kinds)
    assert message.usage.output_tokens == len((await exact(world, real, 1))[0].response_token_ids) // 4


async def test_a_stream_with_the_sync_client(client, world, real):
    def read() -> anthropic.types.Message:
        with sync(client) as blocking, blocking.messages.stream(**ASK) as stream:
            assert "".join(stream.text_stream) == stream.get_final_text()
            return stream.get_final_message()

    message = await asyncio.to_thread(read)
    (call,) = await exact(world, real, 1)
    assert (message.id, message.usage.output_tokens) == (call.response_id, len(call.response_token_ids) // 4)


async def test_events_come_in_anthropics_order(client, world, real):
    events = [event async for event in await client.messages.create(**ASK, stream=True)]
    kinds = [event.type for event in events]
    inner = kinds[2:-3]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(inner) == {"content_block_delta"}  # pings are dropped by the client
    (call,) = await exact(world, real, 1)
    assert events[0].message.usage.input_tokens == len(call.prompt_token_ids) // 4
    assert events[-2].usage.output_tokens == len(call.response_token_ids) // 4


async def test_the_live_stream_says_what_the_whole_message_says(client, world, real):
    whole = await client.messages.create(**ASK)
    async with client.messages.stream(**ASK) as stream:
        assert await stream.get_final_text() == whole.content[0].text
        assert (await stream.get_final_message()).stop_reason == whole.stop_reason
    await exact(world, real, 2)


async def test_a_stop_sequence_is_named(client, world, real):
    text = (await client.messages.create(**ASK)).content[0].text
    stop = text[len(text) // 2]
    whole = await client.messages.create(**ASK, stop_sequences=[stop])
    async with client.messages.stream(**ASK, stop_sequences=[stop]) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
        assert stop not in message.content[0].text
    await exact(world, real, 3)


async def test_tokens_are_counted_exactly_and_it_is_no_call(client, world, real):
    said = {"messages": ASKED, "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]}
    counted = await client.messages.count_tokens(model="policy", tools=[ADD], **said)
    assert (await world.counted(), world.collector.spans) == (0, [])
    message = await client.messages.create(model="policy", max_tokens=5, tools=[ADD], **said)
    assert counted.input_tokens == message.usage.input_tokens
    await exact(world, real, 1)


async def test_tokens_are_not_counted_for_a_stale_attempt(client, world):
    with pytest.raises(anthropic.ConflictError):
        await client.with_options(api_key=world.token(attempt=7)).messages.count_tokens(model="policy", messages=ASKED)
    assert (await client.messages.count_tokens(model="policy", messages=ASKED)).input_tokens
    assert await world.ledger.episodes.cancel(RUN, EPISODE)
    with pytest.raises(anthropic.ConflictError):
        await client.messages.count_tokens(model="policy", messages=ASKED)


async def test_the_models_of_the_run_are_listed(client):
    models = [model async for model in client.models.list()]
    assert [(model.id, model.type, model.lifecycle) for model in models] == [
        (name, "model", "active") for name in ("policy", "policy/policy")
    ]
    assert (await client.models.retrieve("policy")).display_name == "policy"
    with pytest.raises(anthropic.NotFoundError, match="policy") as caught:
        await client.models.retrieve("claude")
    assert caught.value.body["type"] == "error"


async def test_errors_are_worded_as_anthropics(client, world):
    async def kind(expected: type[anthropic.APIStatusError], token: str | None = None, **ask: object) -> str:
        with pytest.raises(expected) as caught:
            await client.with_options(api_key=token or client.api_key).messages.create(**{**ASK, **ask})
        assert set(caught.value.body) == {"type", "error"}
        return caught.value.body["error"]["type"]

    assert await kind(anthropic.AuthenticationError, token="forged") == "authentication_error"
    assert await kind(anthropic.NotFoundError, model="claude") == "not_found_error"
    assert await kind(anthropic.BadRequestError, max_tokens=0) == "invalid_request_error"
    assert await kind(anthropic.ConflictError, token=world.token(attempt=7)) == "invalid_request_error"
    assert await kind(anthropic.BadRequestError, messages=[{"role": "user", "content": "7" * 2000}])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    assert await kind(anthropic.BadRequestError, messages=[{"role": "user", "content": [image]}])
    assert await kind(anthropic.BadRequestError, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert await world.counted() == 0


async def test_a_stream_that_breaks_ends_with_an_error_event(client, world):
    await world.engine.start()
    try:
        await world.beat(url=world.engine.url)
        await asyncio.sleep(0.2)
        world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, completion(ask), 2))
        with pytest.raises(anthropic.APIStatusError) as caught:
            [event async for event in await client.messages.create(**ASK, stream=True)]
        assert caught.value.body["error"]["type"] == "api_error"
    finally:
        await world.engine.stop()


async def test_a_bearer_token_is_as_good_as_a_key(client, world, real):
    token = world.token()
    async with anthropic.AsyncAnthropic(base_url=client.base_url, api_key=None, auth_token=token) as other:
        await other.messages.create(**ASK)
    await exact(world, real, 1)


async def test_the_same_conversation_makes_the_same_prompt_as_chat(client, world, real, placed):
    """With a system prompt, a tool call and its result."""
    chat = world.client(placed[1])
    use = {"type": "tool_use", "id": "call_1", "name": "add", "input": ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "95"}
    await client.messages.create(
        model="policy",
        max_tokens=5,
        system="Add.",
        tools=[ADD],
        messages=[
            *ASKED,
            {"role": "assistant", "content": [{"type": "text", "text": "Wait."}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
        ],
    )
    function = {"name": "add", "arguments": json.dumps(ARGUMENTS)}
    await chat.chat.completions.create(
        model="policy",
        max_tokens=5,
        tools=[{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}],
        messages=[
            {"role": "system", "content": "Add."},
            *ASKED,
            {
                "role": "assistant",
                "content": "Wait.",
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "95"},
            {"role": "user", "content": "So?"},
        ],
    )
    first, second = await exact(world, real, 2)
    assert first.prompt_token_ids == second.prompt_token_ids


async def test_the_raw_stream_names_its_events(client, world):
    async with httpx.AsyncClient(base_url=str(client.base_url), headers={"x-api-key": world.token()}) as http:
        answer = await http.post("/v1/messages", json={**ASK, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in answer.text.strip().split("\n\n")]
    named = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))["type"]) for name, data in events]
    assert all(name == kind for name, kind in named)
    assert [name for name, _ in named][:3] == ["message_start", "content_block_start", "ping"]
