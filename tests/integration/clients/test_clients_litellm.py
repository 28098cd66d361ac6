"""LiteLLM as a client of the gateway."""

import asyncio
import json

import litellm
import pytest

MESSAGES = [{"role": "user", "content": "What is 37 + 58?"}]
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "calculator", "description": "d", "parameters": PARAMETERS}}]


@pytest.fixture
def ask(agent) -> dict:
    return asked_of(agent)


def asked_of(agent, **more) -> dict:
    base = {"model": "openai/policy", "api_base": agent.url, "api_key": agent.key, "num_retries": 0}
    return {**base, "messages": MESSAGES, **more}


async def test_litellm_completion(agent, ask):
    first = await asyncio.to_thread(lambda: litellm.completion(**ask, max_tokens=6))
    second = await litellm.acompletion(**ask, max_tokens=6)
    assert first.choices[0].finish_reason == "length"
    await agent.recorded(2, first.usage.completion_tokens + second.usage.completion_tokens)


async def test_litellm_stream(agent, ask):
    more = {"max_tokens": 6, "stream": True, "stream_options": {"include_usage": True}}
    chunks = [chunk async for chunk in await litellm.acompletion(**ask, **more)]
    whole = litellm.stream_chunk_builder(chunks)
    again = litellm.stream_chunk_builder(await asyncio.to_thread(lambda: list(litellm.completion(**ask, **more))))
    assert isinstance(whole.choices[0].message.content, str)
    await agent.recorded(2, whole.usage.completion_tokens + again.usage.completion_tokens)


async def test_litellm_tools(agent, ask):
    first = await litellm.acompletion(**ask, tools=TOOLS)
    message = first.choices[0].message
    (called,) = message.tool_calls
    assert json.loads(called.function.arguments) == {"expression": "37 + 58"}
    result = {"role": "tool", "tool_call_id": called.id, "content": "95"}
    turns = [*MESSAGES, message.model_dump(exclude_none=True), result]
    second = await litellm.acompletion(**{**ask, "messages": turns}, tools=TOOLS, max_tokens=5)
    await agent.recorded(2, first.usage.completion_tokens + second.usage.completion_tokens)


async def test_litellm_streamed_tools(agent, ask):
    more = {"stream": True, "stream_options": {"include_usage": True}}
    whole = litellm.stream_chunk_builder(
        [chunk async for chunk in await litellm.acompletion(**ask, **more, tools=TOOLS)]
    )
    (called,) = whole.choices[0].message.tool_calls
    assert json.loads(called.function.arguments) == {"expression": "37 + 58"}
    await agent.recorded(1, whole.usage.completion_tokens)


async def test_litellm_samples_and_logprobs(agent, ask):
    reply = await litellm.acompletion(**ask, n=2, max_tokens=5, logprobs=True, top_logprobs=1)
    assert [len(choice.logprobs.content) for choice in reply.choices] == [5, 5]
    await agent.recorded(2, 10)


async def test_litellm_text_completion(agent, ask):
    del ask["messages"]
    ask["model"] = "text-completion-openai/policy"
    reply = await litellm.atext_completion(**ask, prompt="What is 37 + 58?", max_tokens=5)
    await agent.recorded(1, reply.usage.completion_tokens)


async def test_litellm_responses(agent, ask):
    del ask["messages"]
    reply = await litellm.aresponses(**ask, input="What is 37 + 58?", max_output_tokens=5)
    assert reply.status == "incomplete"
    stream = await litellm.aresponses(**ask, input="What is 37 + 58?", max_output_tokens=5, stream=True)
    events = [event async for event in stream]
    assert events[-1].response.status == "incomplete"
    await agent.recorded(2, reply.usage.output_tokens + events[-1].response.usage.output_tokens)


async def test_litellm_json_schema(played):
    schema = {"name": "sum", "schema": {"type": "object", "properties": {"answer": {"type": "integer"}}}}
    form = {"type": "json_schema", "json_schema": schema}
    reply = await litellm.acompletion(**asked_of(played), response_format=form)
    assert json.loads(reply.choices[0].message.content) == {"answer": 95}
    assert played.world.engine.asked[0]["response_format"] == form
    await played.recorded(1, reply.usage.completion_tokens)


async def test_litellm_errors(agent, ask):
    with pytest.raises(litellm.BadRequestError, match="256"):
        await litellm.acompletion(**{**ask, "messages": [{"role": "user", "content": "7" * 2000}]})
    with pytest.raises(litellm.NotFoundError, match="nobody"):
        await litellm.acompletion(**{**ask, "model": "openai/nobody"})
    await agent.recorded(0, 0)
