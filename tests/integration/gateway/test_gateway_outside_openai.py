"""OpenAI's protocols for a role that an outside provider plays: what the agent asks reaches the provider."""

import openai
import pytest

from support.gateway import World, completion
from support.played import Replica
from support.servers import find_port

PROVIDER = "elsewhere"


@pytest.fixture
async def provider(world: World):
    replica = Replica(find_port())
    await replica.start()
    yield replica
    await replica.stop()


@pytest.fixture
async def client(world: World, provider: Replica) -> openai.AsyncOpenAI:
    outside = {"trained": False, "outside": {"provider": PROVIDER, "model": "big"}}
    await world.make_run(roles={"policy": {}, "judge": outside})
    providers = {PROVIDER: {"url": f"{provider.url}/v1", "api_key": "provider-key"}}
    return world.client(await world.gateway(providers=providers))


async def test_chat_with_logprobs(world, provider, client):
    ask: dict = {"model": "judge", "messages": [{"role": "user", "content": "a"}]}
    reply = await client.chat.completions.create(**ask, logprobs=True, top_logprobs=1)
    assert reply.choices[0].message.content == "the answer is 42"
    assert len(reply.choices[0].logprobs.content) == 5
    (asked,) = provider.asked
    assert (asked["model"], asked["logprobs"], asked["top_logprobs"]) == ("big", True, 1)
    await client.chat.completions.create(**ask)
    assert "logprobs" not in provider.asked[1]


@pytest.mark.parametrize("stream", [False, True])
async def test_text_completions(world, provider, client, stream):
    ask: dict = {"model": "judge", "prompt": "a", "logprobs": 2}
    reply = await client.completions.create(**ask, stream=stream)
    chunks = [chunk async for chunk in reply] if stream else [reply]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "the answer is 42"
    (asked,) = provider.asked
    assert (asked["prompt"], asked["logprobs"], asked["stream"]) == ("a", 2, False)
    (call,) = await world.collector.calls(1)
    assert call.response_token_ids == b""


@pytest.mark.parametrize("stream", [False, True])
async def test_responses(world, provider, client, stream):
    reply = await client.responses.create(model="judge", input="a", stream=stream)
    whole = [event async for event in reply][-1].response if stream else reply
    assert (whole.output_text, whole.usage.input_tokens, whole.usage.output_tokens) == ("the answer is 42", 7, 5)


async def test_several_samples_add_up(client):
    reply = await client.chat.completions.create(model="judge", messages=[{"role": "user", "content": "a"}], n=2)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (7, 10, 17)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens_details": None}])
async def test_a_provider_may_not_know_what_it_used(provider, client, usage):
    async def answer(request, ask):
        return provider.reply(completion(ask, usage=usage))

    provider.misbehave.append(answer)
    reply = await client.responses.create(model="judge", input="a")
    assert (reply.output_text, reply.usage.total_tokens) == ("the answer is 42", 0)
