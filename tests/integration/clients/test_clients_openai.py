"""OpenAI's own client for Python before the gateway. What it is told and what is recorded are the engine's own."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from leyden_traces import unpack_logprobs
from support.gateway import completion

QUESTION = "What is 37 + 58?"
MESSAGES: list = [{"role": "user", "content": QUESTION}]
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
FUNCTION = {"name": "calculator", "description": "Calculates.", "parameters": PARAMETERS}
TOOLS: list = [{"type": "function", "function": FUNCTION}]
FLAT_TOOLS: list = [{"type": "function", **FUNCTION, "strict": False}]


class Sum(BaseModel):
    answer: int


@contextlib.asynccontextmanager
async def client_of(agent) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=agent.url, api_key=agent.key, max_retries=0) as client:
        yield client


@pytest.fixture
async def client(agent):
    async with client_of(agent) as client:
        yield client


@pytest.fixture
async def played_client(played):
    async with client_of(played) as client:
        yield client


async def test_chat(agent, client):
    reply = await client.chat.completions.create(model="policy", messages=MESSAGES, max_tokens=8)
    (choice,) = reply.choices
    assert (choice.message.role, choice.finish_reason, reply.model) == ("assistant", "length", "policy")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 8
    (call,) = await agent.recorded(1, reply.usage.completion_tokens)
    assert call.response_id == reply.id


async def test_chat_of_the_synchronous_client(agent):
    def talk() -> tuple[int, int]:
        with openai.OpenAI(base_url=agent.url, api_key=agent.key, max_retries=0) as client:
            ask = {"model": "policy", "messages": MESSAGES, "max_tokens": 6}
            plain = client.chat.completions.create(**ask)
            chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
            response = client.responses.create(model="policy", input=QUESTION, max_output_tokens=6)
            text = client.completions.create(model="policy", prompt=QUESTION, max_tokens=6)
            used = (plain.usage.completion_tokens, chunks[-1].usage.completion_tokens)
            return 4, sum(used) + response.usage.output_tokens + text.usage.completion_tokens

    await agent.recorded(*await asyncio.to_thread(talk))


async def test_chat_stream(agent, client):
    stream = await client.chat.completions.create(
        model="policy", messages=MESSAGES, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    assert (last.choices, last.usage.completion_tokens) == ([], 8)
    await agent.recorded(1, 8)


async def test_chat_stream_says_what_the_whole_answer_says(agent, client):
    """A frozen role with a seed says the same thing twice."""
    ask: dict = {"model": "helper", "messages": MESSAGES, "max_tokens": 12, "seed": 5, "temperature": 1}
    whole = await client.chat.completions.create(**ask)
    stream = await client.chat.completions.create(**ask, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].message.content
    first, second = await agent.recorded(2, 2 * whole.usage.completion_tokens)
    assert first.response_token_ids == second.response_token_ids


async def test_chat_tools(agent, client):
    ask: dict = {"model": "policy", "tools": TOOLS}
    reply = await client.chat.completions.create(messages=MESSAGES, **ask)
    (choice,) = reply.choices
    (called,) = choice.message.tool_calls
    assert (choice.finish_reason, called.function.name) == ("tool_calls", "calculator")
    assert json.loads(called.function.arguments) == {"expression": "37 + 58"}
    result = {"role": "tool", "tool_call_id": called.id, "content": "95"}
    turns = [*MESSAGES, choice.message, result]
    second = await client.chat.completions.create(messages=turns, max_tokens=6, **ask)
    await agent.recorded(2, reply.usage.completion_tokens + second.usage.completion_tokens)


async def test_chat_tools_stream(agent, client):
    stream = await client.chat.completions.create(
        model="policy", messages=MESSAGES, tools=TOOLS, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert {call.function.name for call in calls if call.function.name} == {"calculator"}
    assert json.loads("".join(call.function.arguments or "" for call in calls)) == {"expression": "37 + 58"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    await agent.recorded(1, last.usage.completion_tokens)


async def test_chat_samples(agent, client):
    reply = await client.chat.completions.create(
        model="helper", messages=MESSAGES, n=3, max_tokens=7, seed=1, temperature=1
    )
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in reply.choices}) > 1
    assert reply.usage.completion_tokens == 21
    await agent.recorded(3, 21)


async def test_chat_samples_stream(agent, client):
    stream = await client.chat.completions.create(
        model="policy", messages=MESSAGES, n=2, max_tokens=7, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert {chunk.choices[0].index for chunk in chunks} == {0, 1}
    await agent.recorded(2, last.usage.completion_tokens)


async def test_chat_stop(agent, client):
    ask: dict = {"model": "helper", "messages": MESSAGES, "max_tokens": 24, "seed": 5, "temperature": 1}
    reply = await client.chat.completions.create(**ask)
    whole = reply.choices[0].message.content
    stop = next(letter for letter in whole if letter.isascii() and letter.isprintable())
    cut = await client.chat.completions.create(**ask, stop=[stop])
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (whole[: whole.index(stop)], "stop")
    await agent.recorded(2, reply.usage.completion_tokens + cut.usage.completion_tokens)


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_logprobs(agent, client, stream):
    ask: dict = {"model": "policy", "messages": MESSAGES, "max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    if stream:
        chunks = [chunk async for chunk in await client.chat.completions.create(**ask, stream=True)]
        shown = [one for chunk in chunks if chunk.choices[0].logprobs for one in chunk.choices[0].logprobs.content]
    else:
        shown = (await client.chat.completions.create(**ask)).choices[0].logprobs.content
    assert {len(entry.top_logprobs) for entry in shown} == {2}
    (call,) = await agent.recorded(1, 5)
    assert [entry.logprob for entry in shown] == pytest.approx(unpack_logprobs(call.response_logprobs).tolist())
    silent = await client.chat.completions.create(model="policy", messages=MESSAGES, max_tokens=5)
    assert silent.choices[0].logprobs is None


async def test_chat_json_schema(played, played_client):
    reply = await played_client.chat.completions.parse(model="policy", messages=MESSAGES, response_format=Sum)
    assert reply.choices[0].message.parsed == Sum(answer=95)
    assert played.world.engine.asked[0]["response_format"]["json_schema"]["schema"]["required"] == ["answer"]
    async with played_client.chat.completions.stream(model="policy", messages=MESSAGES, response_format=Sum) as stream:
        assert (await stream.get_final_completion()).choices[0].message.parsed == Sum(answer=95)
    await played.recorded(2, 10)


async def test_completions(agent, client):
    reply = await client.completions.create(model="policy", prompt=QUESTION, max_tokens=6, n=2)
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert (reply.object, reply.choices[0].logprobs, reply.choices[0].finish_reason) == (
        "text_completion",
        None,
        "length",
    )
    first, second = await agent.recorded(2, reply.usage.completion_tokens)
    assert first.prompt_token_ids == second.prompt_token_ids


async def test_completions_of_token_ids(agent, client):
    reply = await client.completions.create(model="policy", prompt=[11, 12, 13], max_tokens=4, logprobs=2)
    (call,) = await agent.recorded(1, 4)
    assert reply.usage.prompt_tokens == 3
    shown = reply.choices[0].logprobs
    assert shown.token_logprobs == pytest.approx(unpack_logprobs(call.response_logprobs).tolist())
    assert {len(top) for top in shown.top_logprobs} <= {2, 3}


async def test_completions_stream(agent, client):
    ask: dict = {"model": "helper", "prompt": QUESTION, "max_tokens": 9, "seed": 2, "temperature": 1}
    whole = await client.completions.create(**ask)
    stream = await client.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    *chunks, last = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    await agent.recorded(2, whole.usage.completion_tokens + last.usage.completion_tokens)


async def test_completions_stop(agent, client):
    ask: dict = {"model": "helper", "prompt": QUESTION, "max_tokens": 16, "seed": 2, "temperature": 1}
    reply = await client.completions.create(**ask)
    whole = reply.choices[0].text
    stop = next(letter for letter in whole if letter.isascii() and letter.isprintable())
    cut = await client.completions.create(**ask, stop=stop)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (whole[: whole.index(stop)], "stop")
    await agent.recorded(2, reply.usage.completion_tokens + cut.usage.completion_tokens)


async def test_responses(agent, client):
    reply = await client.responses.create(model="policy", input=QUESTION, instructions="hi", max_output_tokens=8)
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert isinstance(reply.output_text, str)
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    await agent.recorded(1, reply.usage.output_tokens)


async def test_responses_prompt_is_that_of_chat(agent, client):
    """The same conversation in both protocols is the same prompt, token by token."""
    await client.responses.create(
        model="policy",
        instructions="hi",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"role": "assistant", "content": "b"},
            {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": '{"expression": "1"}'},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ],
        tools=FLAT_TOOLS,
        max_output_tokens=2,
    )
    function = {"name": "calculator", "arguments": '{"expression": "1"}'}
    turns: list = [
        {"role": "system", "content": "hi"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    await client.chat.completions.create(model="policy", messages=turns, tools=TOOLS, max_tokens=2)
    first, second = await agent.recorded(2, 4)
    assert first.prompt_token_ids == second.prompt_token_ids


async def test_responses_stream(agent, client):
    async with client.responses.stream(model="policy", input=QUESTION, max_output_tokens=8) as stream:
        events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.incomplete")
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == events[-1].response.output_text
    await agent.recorded(1, events[-1].response.usage.output_tokens)


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_tools(agent, client, stream):
    ask: dict = {"model": "policy", "input": QUESTION, "tools": FLAT_TOOLS}
    if stream:
        async with client.responses.stream(**ask) as events:
            deltas = [event.delta async for event in events if event.type == "response.function_call_arguments.delta"]
            reply = await events.get_final_response()
    else:
        reply = await client.responses.create(**ask)
    called = reply.output[-1]
    assert (called.type, called.name, reply.status) == ("function_call", "calculator", "completed")
    assert json.loads(called.arguments) == {"expression": "37 + 58"}
    assert not stream or "".join(deltas) == called.arguments
    turns: list = [{"role": "user", "content": QUESTION}, *reply.output]
    turns.append({"type": "function_call_output", "call_id": called.call_id, "output": "95"})
    second = await client.responses.create(
        model="policy",
        tools=FLAT_TOOLS,
        max_output_tokens=5,
        input=turns
        if not stream
        else [turns[0], *(item.model_dump(exclude={"parsed_arguments"}) for item in reply.output), turns[-1]],
    )
    await agent.recorded(2, reply.usage.output_tokens + second.usage.output_tokens)


async def test_responses_logprobs(agent, client):
    reply = await client.responses.create(
        model="policy",
        input=QUESTION,
        max_output_tokens=5,
        include=["message.output_text.logprobs"],
        top_logprobs=1,
    )
    shown = reply.output[0].content[0].logprobs
    (call,) = await agent.recorded(1, 5)
    assert [entry.logprob for entry in shown] == pytest.approx(unpack_logprobs(call.response_logprobs).tolist())


async def test_responses_json_schema(played, played_client):
    reply = await played_client.responses.parse(model="policy", input=QUESTION, text_format=Sum)
    assert reply.output_parsed == Sum(answer=95)
    assert played.world.engine.asked[0]["response_format"]["json_schema"]["schema"]["required"] == ["answer"]
    async with played_client.responses.stream(model="policy", input=QUESTION, text_format=Sum) as stream:
        assert (await stream.get_final_response()).output_parsed == Sum(answer=95)
    await played.recorded(2, 10)


async def test_responses_keep_nothing(agent, client):
    first = await client.responses.create(model="policy", input=QUESTION, max_output_tokens=2, store=True)
    with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
        await client.responses.create(model="policy", input="and?", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
        await client.responses.create(model="policy", input="and?", background=True)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(first.id)
    await agent.recorded(1, 2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "nobody"),
        ({"temperature": 9}, openai.BadRequestError, "temperature"),
        ({"n": 0}, openai.BadRequestError, "`n` must be"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "user", "content": "7" * 2000}]}, openai.BadRequestError, "256"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_chat_errors(agent, client, change, error, message, stream):
    ask: dict = {"model": "policy", "messages": MESSAGES, **change}
    with pytest.raises(error, match=message) as caught:
        await client.chat.completions.create(**ask, stream=stream)
    assert {"message", "type", "param", "code"} == set(caught.value.body)
    await agent.recorded(0, 0)


async def test_errors_of_the_other_two(agent, client):
    with pytest.raises(openai.BadRequestError, match="several prompts"):
        await client.completions.create(model="policy", prompt=["a", "b"])
    with pytest.raises(openai.BadRequestError, match="'web_search'"):
        await client.responses.create(model="policy", input="x", tools=[{"type": "web_search"}])
    async with openai.AsyncOpenAI(base_url=agent.url, api_key="wrong", max_retries=0) as stranger:
        for refused in (
            stranger.completions.create(model="policy", prompt="a"),
            stranger.responses.create(model="policy", input="a"),
        ):
            with pytest.raises(openai.AuthenticationError):
                await refused
    await agent.recorded(0, 0)


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_a_stream_that_breaks_raises(played, played_client, protocol):
    engine = played.world.engine
    engine.misbehave.append(lambda request, ask: engine.stream(request, completion(ask), 2))
    if protocol == "chat":
        stream: Any = await played_client.chat.completions.create(model="policy", messages=MESSAGES, stream=True)
    else:
        stream = await played_client.responses.create(model="policy", input=QUESTION, stream=True)
    with pytest.raises(openai.APIError, match="went away in mid-reply"):
        [event async for event in stream]


async def test_responses_arrive_while_the_replica_still_writes(played, played_client):
    ready, engine = asyncio.Event(), played.world.engine
    engine.misbehave.append(lambda request, ask: engine.stream(request, completion(ask), 1, ready))
    events = aiter(await played_client.responses.create(model="policy", input=QUESTION, stream=True))
    seen = [await anext(events) for _ in range(5)]
    assert (seen[-1].type, seen[-1].delta) == ("response.output_text.delta", "the")
    assert not played.world.collector.spans
    ready.set()
    last = [event async for event in events][-1]
    assert (last.type, last.response.output_text) == ("response.completed", "the answer is 42")
    await played.recorded(1, 5)
