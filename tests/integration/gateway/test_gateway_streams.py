"""Live streams: the agent reads while the replica writes, and what is recorded is what it got."""

import asyncio

import openai
import pytest

from leyden_traces import pack_ids
from support.gateway import completion

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]


@pytest.fixture
async def client(world):
    await world.make_run()
    await world.beat()
    return world.client(await world.gateway())


def stream(client, **more):
    return client.chat.completions.create(model="policy", messages=MESSAGES, stream=True, **more)


async def test_the_first_token_arrives_while_the_replica_still_writes(world, client):
    ready = asyncio.Event()
    world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, completion(ask), 1, ready))
    chunks = aiter(await stream(client))
    assert (await anext(chunks)).choices[0].delta.role == "assistant"
    assert (await anext(chunks)).choices[0].delta.content == "the"
    assert not world.collector.spans
    ready.set()
    assert [chunk.choices[0].finish_reason async for chunk in chunks][-1] == "stop"
    assert (await world.collector.calls(1))[0].finish_reason == "stop"


async def test_an_agent_that_hangs_up_leaves_the_tokens_it_got(world, client):
    ready = asyncio.Event()
    body = completion({"model": "tiny"})
    world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, body, 2, ready))
    chunks = await stream(client)
    seen = [(await anext(aiter(chunks))).choices[0].delta.content for _ in range(3)]
    assert seen == ["", "the", " an"]
    await chunks.close()
    (call,) = await world.collector.calls(1)
    assert (call.finish_reason, call.number) == ("cut", 1)
    assert call.response_token_ids == pack_ids(body["choices"][0]["token_ids"][:2])
    await world.until(lambda: world.engine.cancelled)  # the replica is told to stop
    assert await world.counted() == 1


async def test_a_replica_that_dies_before_the_first_token_is_replaced(world, client):
    for tokens in (-1, 0):
        world.engine.misbehave.append(
            lambda request, ask, tokens=tokens: world.engine.stream(request, completion(ask), tokens)
        )
    chunks = [chunk async for chunk in await stream(client)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "the answer is 42"
    assert (await world.collector.calls(1))[0].number == 1
    assert len(world.engine.asked) == 3


async def test_a_replica_that_dies_in_mid_reply_makes_the_attempt_incomplete(world, client):
    world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, completion(ask), 2))
    with pytest.raises(openai.APIError, match="went away in mid-reply"):
        [chunk async for chunk in await stream(client)]
    assert await world.counted() == 1
    await asyncio.sleep(0.3)
    assert not world.collector.spans, "half a reply is no call to train on"


async def test_a_stream_that_cannot_be_recorded_ends_with_an_error(world, client):
    body = completion({"model": "tiny"})
    body["usage"]["completion_tokens"] = 4
    world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, body))
    with pytest.raises(openai.APIError, match="5 token ids but usage says 4"):
        [chunk async for chunk in await stream(client)]
    await asyncio.sleep(0.3)
    assert not world.collector.spans


async def test_several_samples_are_several_calls(world, client):
    reply = await client.chat.completions.create(model="policy", messages=MESSAGES, n=3)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 15)
    calls = await world.collector.calls(3)
    assert [call.number for call in calls] == [1, 2, 3]
    assert {call.response_token_ids for call in calls} == {
        pack_ids(answer["choices"][0]["token_ids"]) for answer in world.engine.answered
    }
    chunks = [chunk async for chunk in await stream(client, n=2)]
    assert {chunk.choices[0].index for chunk in chunks} == {0, 1}
    assert await world.counted() == 5


async def test_every_answer_has_a_request_id(world, client):
    plain = await client.chat.completions.with_raw_response.create(model="policy", messages=MESSAGES)
    with pytest.raises(openai.NotFoundError) as refused:
        await client.chat.completions.create(model="nobody", messages=MESSAGES)
    streamed = await stream(client)
    ids = {answer.headers["x-request-id"] for answer in (plain, refused.value.response, streamed.response)}
    assert len(ids) == 3 and None not in ids


async def test_a_run_may_not_take_the_whole_gateway(world):
    await world.make_run()
    await world.beat()
    gateway = await world.gateway(max_calls_of_a_run=2)
    ready, client = asyncio.Event(), world.client(gateway)
    for _ in range(2):
        world.engine.misbehave.append(lambda request, ask: world.engine.stream(request, completion(ask), 1, ready))
    running = [await stream(client) for _ in range(2)]
    with pytest.raises(openai.RateLimitError, match="2 calls under way"):
        await client.chat.completions.create(model="policy", messages=MESSAGES)
    ready.set()
    for one in running:
        assert [chunk async for chunk in one]
    await client.chat.completions.create(model="policy", messages=MESSAGES)


async def test_samples_that_are_too_many_together_count_not_at_all(world):
    await world.make_run(episodes={"max_calls": 2})
    await world.beat()
    client = world.client(await world.gateway())
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model="policy", messages=MESSAGES, n=3)
    assert await world.counted() == 0
    await client.chat.completions.create(model="policy", messages=MESSAGES, n=2)
    assert [call.number for call in await world.collector.calls(2)] == [1, 2], "and none of what never left is recorded"
