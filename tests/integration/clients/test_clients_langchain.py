"""LangChain's ChatOpenAI before the gateway, in both of the protocols that it speaks."""

import asyncio

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

QUESTION = "What is 37 + 58?"


class Sum(BaseModel):
    """A sum."""

    answer: int


@tool
def calculator(expression: str) -> str:
    """Calculates."""
    return str(sum(map(int, expression.split(" + "))))


def model(agent, **more) -> ChatOpenAI:
    return ChatOpenAI(model="policy", base_url=agent.url, api_key=agent.key, max_retries=0, **more)


def used(*replies: AIMessage) -> int:
    return sum(reply.usage_metadata["output_tokens"] for reply in replies)


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def responses(request) -> bool:
    """Whether LangChain speaks the Responses API."""
    return request.param


async def test_langchain_invoke(agent, responses):
    llm = model(agent, max_tokens=8, use_responses_api=responses)
    first = await asyncio.to_thread(llm.invoke, QUESTION)
    second = await llm.ainvoke([("system", "hi"), ("user", QUESTION)])
    assert isinstance(first.text, str)
    assert first.usage_metadata["total_tokens"] == first.usage_metadata["input_tokens"] + used(first)
    await agent.recorded(2, used(first, second))


async def test_langchain_stream(agent, responses):
    llm = model(agent, max_tokens=8, use_responses_api=responses, stream_usage=True)
    chunks = [chunk async for chunk in llm.astream(QUESTION)]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    pieces = await asyncio.to_thread(lambda: list(llm.stream(QUESTION)))
    again = pieces[0]
    for piece in pieces[1:]:
        again += piece
    await agent.recorded(2, used(whole, again))


async def test_langchain_bind_tools(agent, responses):
    llm = model(agent, use_responses_api=responses).bind_tools([calculator])
    first = await llm.ainvoke(QUESTION)
    (called,) = first.tool_calls
    assert (called["name"], called["args"]) == ("calculator", {"expression": "37 + 58"})
    result = calculator.invoke(called)
    assert isinstance(result, ToolMessage)
    second = await llm.ainvoke([HumanMessage(QUESTION), first, result], max_tokens=6)
    await agent.recorded(2, used(first, second))


async def test_langchain_streamed_tools(agent, responses):
    llm = model(agent, use_responses_api=responses, stream_usage=True).bind_tools([calculator])
    chunks = [chunk async for chunk in llm.astream(QUESTION)]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("calculator", {"expression": "37 + 58"})]
    await agent.recorded(1, used(whole))


async def test_langchain_logprobs(agent):
    reply = await model(agent, max_tokens=5).bind(logprobs=True).ainvoke(QUESTION)
    assert len(reply.response_metadata["logprobs"]["content"]) == 5
    await agent.recorded(1, 5)


async def test_langchain_samples(agent):
    result = await model(agent, n=2, max_tokens=5).agenerate([[HumanMessage(QUESTION)]])
    assert len(result.generations[0]) == 2
    await agent.recorded(2, result.llm_output["token_usage"]["completion_tokens"])


async def test_langchain_completions(agent):
    llm = OpenAI(model="policy", base_url=agent.url, api_key=agent.key, max_retries=0, max_tokens=6)
    result = await llm.agenerate([QUESTION])
    assert isinstance(result.generations[0][0].text, str)
    await agent.recorded(1, result.llm_output["token_usage"]["completion_tokens"])


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_langchain_structured_output(played, responses, method):
    llm = model(played, use_responses_api=responses).with_structured_output(Sum, method=method, include_raw=True)
    if method == "function_calling":  # what is played calls a calculator whatever it is given
        answer = await llm.ainvoke(QUESTION)
        (asked,) = played.world.engine.asked
        assert asked["tool_choice"] == {"type": "function", "function": {"name": "Sum"}}
        assert asked["tools"][0]["function"]["parameters"]["required"] == ["answer"]
    else:
        answer = await llm.ainvoke(QUESTION)
        assert answer["parsed"] == Sum(answer=95)
    await played.recorded(1, used(answer["raw"]))


async def test_langchain_errors(agent, responses):
    llm = model(agent, use_responses_api=responses)
    with pytest.raises(openai.NotFoundError, match="nobody"):
        await llm.bind(model="nobody").ainvoke(QUESTION)
    with pytest.raises(openai.BadRequestError, match="256"):
        await llm.ainvoke("7" * 2000)
    await agent.recorded(0, 0)
