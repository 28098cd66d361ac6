"""Each client once more, with its policy in a real vLLM: whole, streamed, with a tool; and every token recorded."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import ollama
import openai
import pytest
from langchain_openai import ChatOpenAI

from leyden_ledger import Ledger
from support.gateway import World
from support.taught_engine import ARGUMENTS, QUESTION, SCHEMA, TaughtEngine, before, taught_model
from support.vllm import API_KEY, vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
MESSAGES = [{"role": "user", "content": QUESTION}]
OTHER = [{"role": "user", "content": "Tell me a story."}]
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}


@dataclass
class Agent:
    """What an agent is given, and what was recorded of it."""

    world: World
    host: str
    key: str

    @property
    def url(self) -> str:
        return f"{self.host}/v1"

    async def recorded(self, tokens: list[int]) -> None:
        """Check that there is a call for each of `tokens`, of so many tokens, each with its logprob."""
        calls = await self.world.collector.calls(len(tokens))
        assert [len(call.response_token_ids) // 4 for call in calls] == tokens
        assert all(len(call.response_logprobs) == len(call.response_token_ids) for call in calls)
        assert await self.world.counted() == len(tokens)


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("vllm")
    with vllm_server(taught_model(folder, hidden=128, context=512), "tiny", folder) as url:
        yield url


@pytest.fixture
async def agent(replica: str, ledger: Ledger, redis_url: str, signing_key: str) -> AsyncIterator[Agent]:
    engine = TaughtEngine(replica, Path("/nowhere"))
    async with before(engine, ledger, redis_url, signing_key, key=API_KEY) as (world, gateway):
        yield Agent(world, gateway.url, world.token())


async def test_openai_at_vllm(agent):
    async with openai.AsyncOpenAI(base_url=agent.url, api_key=agent.key, max_retries=0) as client:
        whole = await client.chat.completions.create(model="policy", messages=OTHER, max_tokens=6, logprobs=True)
        assert len(whole.choices[0].logprobs.content) == 6
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="policy", messages=OTHER, max_tokens=7, stream=True, stream_options={"include_usage": True}
            )
        ]
        assert len(chunks) > 2 and chunks[-1].usage.completion_tokens == 7
        called = await client.chat.completions.create(model="policy", messages=MESSAGES, tools=[TOOL])
        assert called.choices[0].message.tool_calls[0].function.name == "add"
        text = await client.completions.create(model="policy", prompt="So", max_tokens=5)
        answer = await client.responses.create(model="policy", input="Tell me.", max_output_tokens=4)
        assert answer.usage.output_tokens == 4
        samples = await client.chat.completions.create(model="policy", messages=OTHER, max_tokens=3, n=2)
    assert text.usage.completion_tokens == 5 and len(samples.choices) == 2
    await agent.recorded([6, 7, called.usage.completion_tokens, 5, 4, 3, 3])


async def test_langchain_at_vllm(agent):
    model = ChatOpenAI(model="policy", base_url=agent.url, api_key=agent.key, max_retries=0, max_tokens=6)
    assert (await model.ainvoke("Tell me.")).usage_metadata["output_tokens"] == 6
    assert [chunk async for chunk in model.astream("Tell me.")]
    caller = ChatOpenAI(model="policy", base_url=agent.url, api_key=agent.key, max_retries=0).bind_tools([TOOL])
    reply = await caller.ainvoke(QUESTION)
    assert [(call["name"], call["args"]) for call in reply.tool_calls] == [("add", ARGUMENTS)]
    await agent.recorded([6, 6, reply.usage_metadata["output_tokens"]])


async def test_litellm_at_vllm(agent):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    ask = {"model": "openai/policy", "api_base": agent.url, "api_key": agent.key, "num_retries": 0}
    whole = await litellm.acompletion(messages=OTHER, max_tokens=5, **ask)
    stream = await litellm.acompletion(messages=OTHER, max_tokens=5, stream=True, **ask)
    assert [chunk async for chunk in stream]
    called = await litellm.acompletion(messages=MESSAGES, tools=[TOOL], **ask)
    assert called.choices[0].message.tool_calls[0].function.name == "add"
    await agent.recorded([whole.usage.completion_tokens, 5, called.usage.completion_tokens])


async def test_ollama_at_vllm(agent):
    client = ollama.AsyncClient(agent.host, headers={"Authorization": f"Bearer {agent.key}"})
    whole = await client.chat("policy", OTHER, options={"num_predict": 6})
    streamed = [part async for part in await client.chat("policy", OTHER, stream=True, options={"num_predict": 6})]
    called = await client.chat("policy", MESSAGES, tools=[TOOL])
    assert called.message.tool_calls[0].function.arguments == ARGUMENTS
    assert (whole.eval_count, streamed[-1].eval_count) == (6, 6)
    await agent.recorded([6, 6, called.eval_count])
