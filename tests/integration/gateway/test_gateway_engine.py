"""The gateway before the real embedded engine: what was recorded is, bit for bit, what the engine logged."""

import asyncio
from collections.abc import Iterator

import httpx
import openai
import pytest

from leyden_agents.calculator.agent import answer
from leyden_contracts import Transition, adapter_name
from leyden_traces import unpack_ids
from support.real_engine import KEY, RealEngine, real_engine
from support.tiny_model import make_adapter, make_model

MESSAGES = [{"role": "user", "content": "What is 37 + 58?"}]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    folder = tmp_path_factory.mktemp("engine")
    with real_engine(folder, make_model(folder / "model")) as engine:
        yield engine


def same(call: Transition, logged: dict) -> bool:
    return (
        unpack_ids(call.prompt_token_ids).tolist() == logged["prompt_token_ids"]
        and unpack_ids(call.response_token_ids).tolist() == logged["response_token_ids"]
        and call.response_logprobs.hex() == logged["logprobs"]
        and call.temperature == logged["temperature"]
    )


async def start(world, real: RealEngine, *ready: str, **settings: object) -> openai.AsyncOpenAI:
    await world.make_run(sampling={"max_tokens": 24})
    await world.beat(*ready, url=real.url)
    return world.client(await world.gateway(engine_api_key=KEY, **settings))


async def test_what_is_recorded_is_what_the_engine_logged(world, real):
    client = await start(world, real)
    create = client.chat.completions.create
    replies = await asyncio.gather(*(create(model="policy", messages=MESSAGES, temperature=0.1) for _ in range(4)))
    streamed = [chunk async for chunk in await create(model="policy", messages=MESSAGES, stream=True)]
    calls, logged = await world.collector.calls(5), real.logged()
    assert {call.response_id for call in calls} == {reply.id for reply in replies} | {streamed[0].id}
    assert all(same(call, logged[call.response_id]) for call in calls)
    assert {call.number for call in calls} == set(range(1, 6))


async def test_the_calculator_agent_knows_nothing_of_leyden(world, real, monkeypatch):
    client = await start(world, real)
    monkeypatch.setenv("OPENAI_BASE_URL", str(client.base_url))
    monkeypatch.setenv("OPENAI_API_KEY", world.token())
    monkeypatch.setenv("OPENAI_MODEL", "policy")
    assert isinstance(await asyncio.to_thread(answer, {"question": "What is 37 + 58?"}), str)
    calls, logged = await world.collector.calls(1), real.logged()
    assert len(calls) == await world.counted()
    assert all(same(call, logged[call.response_id]) for call in calls)


async def test_an_adapter_that_the_engine_has_forgotten_is_waited_for(world, real, tmp_path):
    """As after a restart: the list of replicas still names the version, and the engine answers 404."""
    name = adapter_name("run-1", "policy", 1)
    folder = await asyncio.to_thread(make_adapter, real.model, tmp_path / "v1")

    async def post(path: str, **body: str) -> None:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
            assert (await http.post(f"{real.url}/v1/{path}", json=body)).status_code == 200

    await post("load_lora_adapter", lora_name=name, lora_path=str(folder))
    client = await start(world, real, name, replica_wait_s=30)
    await client.chat.completions.create(model="policy", messages=MESSAGES)
    await post("unload_lora_adapter", lora_name=name)
    call = asyncio.create_task(client.chat.completions.create(model="policy", messages=MESSAGES))
    await asyncio.sleep(0.7)
    assert not call.done(), "the base model must not stand in"
    await post("load_lora_adapter", lora_name=name, lora_path=str(folder))
    await call
    calls, logged = await world.collector.calls(2), real.logged()
    assert [logged[one.response_id]["model"] for one in calls] == [name, name]
    assert [one.policy_version for one in calls] == [1, 1]
    assert all(same(one, logged[one.response_id]) for one in calls)


async def test_an_agent_that_leaves_stops_the_generation(world, real):
    client = await start(world, real)
    before = len(real.logged())
    call = asyncio.create_task(client.chat.completions.create(model="policy", messages=MESSAGES))
    await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.sleep(0.3)
    assert await world.counted() == len(world.collector.spans)
    assert len(real.logged()) - before <= 1


async def test_the_engines_refusal_of_a_long_prompt_reaches_the_agent(world, real):
    client = await start(world, real)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "7" * 2000}])
    assert "256" in caught.value.message
    assert await world.counted() == 0
