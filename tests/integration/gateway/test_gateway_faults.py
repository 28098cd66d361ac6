"""Engines that fail in every way: the agent's call survives what it can, and nothing inexact is recorded."""

import asyncio
import json

import openai
import pytest
from aiohttp import web

from leyden_contracts import adapter_name

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]


async def ask(client: openai.AsyncOpenAI, **changes: object) -> object:
    return await client.chat.completions.create(**{"model": "policy", "messages": MESSAGES, **changes})


async def refused(client: openai.AsyncOpenAI, **changes: object) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        await ask(client, **changes)
    return caught.value


async def reset(request: web.Request, _: dict) -> web.StreamResponse:
    request.transport.abort()
    return web.Response()


async def cut(request: web.Request, _: dict) -> web.StreamResponse:
    """Promise 1000 bytes, send ten, hang up."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"id": "c"')
    request.transport.close()
    return response


def status(code: int):
    async def answer(_: web.Request, __: dict) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no such model"}}, status=code)

    return answer


async def hang(_: web.Request, __: dict) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


@pytest.fixture
async def client(world):
    await world.make_run()
    await world.beat()
    return world.client(await world.gateway())


@pytest.mark.parametrize("failure", [reset, cut, status(500), status(503), status(404), status(401), status(429)])
async def test_a_replica_that_fails_once_costs_the_agent_nothing(world, client, failure):
    world.engine.misbehave.append(failure)
    assert (await ask(client)).choices[0].message.content == "the answer is 42"
    assert [call.number for call in await world.collector.calls(1)] == [1]
    assert len(world.engine.asked) == 2
    assert await world.counted() == 1


async def test_an_engine_killed_and_restarted_fails_no_call(world, client):
    await world.engine.stop()
    call = asyncio.create_task(ask(client))
    await asyncio.sleep(0.5)
    assert not call.done()
    await world.engine.start()
    assert (await call).choices[0].message.content == "the answer is 42"
    assert await world.counted() == 1


async def test_an_engine_killed_amid_a_call_fails_no_call(world, client):
    world.engine.misbehave.append(hang)
    call = asyncio.create_task(ask(client))
    await world.until(lambda: world.engine.asked)
    await world.engine.stop()
    await world.engine.start()
    assert (await call).choices[0].message.content == "the answer is 42"


async def test_another_replica_takes_over_at_once(world, client):
    await world.beat(id="dead", url="http://127.0.0.1:9")
    for _ in range(4):
        await ask(client)
    assert {call.replica for call in await world.collector.calls(4)} == {"r0"}


async def test_without_any_replica_the_call_ends_with_503(world):
    await world.make_run()
    client = world.client(await world.gateway(replica_wait_s=0.3))
    error = await refused(client)
    assert (error.status_code, error.code) == (503, "no_replica")
    assert error.response.headers["Retry-After"]
    assert await world.counted() == 0


@pytest.mark.parametrize("episode", [{}, {"purpose": "eval", "wanted": 0}])
async def test_a_replica_of_another_base_model_is_no_replica(world, episode):
    await world.make_run(base_model="other", **episode)
    await world.beat()
    client = world.client(await world.gateway(replica_wait_s=0.2))
    assert (await refused(client)).status_code == 503
    assert not world.engine.asked


async def test_an_engine_that_always_answers_500(world, client):
    world.engine.misbehave.extend([status(500)] * 20)
    error = await refused(client)
    assert (error.status_code, error.code) == (502, "upstream_error")
    assert len(world.engine.asked) == 4
    world.engine.misbehave.clear()


async def test_a_silent_engine_ends_with_504(world):
    await world.make_run()
    await world.beat()
    client = world.client(await world.gateway(upstream_timeout_s=0.3))
    world.engine.misbehave.append(hang)
    assert (await refused(client)).status_code == 504
    assert await world.counted() == 0


def inexact(change):
    async def answer(_: web.Request, ask: dict) -> web.StreamResponse:
        body = {
            "id": "c1",
            "created": 1,
            "prompt_token_ids": [1, 2],
            "usage": {"completion_tokens": 2},
            "choices": [
                {
                    "message": {"role": "assistant", "content": "x"},
                    "finish_reason": "stop",
                    "token_ids": [3, 4],
                    "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -0.25}]},
                }
            ],
        }
        return web.Response(text=change(body) or json.dumps(body), content_type="application/json")

    return answer


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b["choices"][0]["token_ids"].append(5),
        lambda b: b["choices"][0]["logprobs"]["content"].pop() and None,
        lambda b: b["usage"].update(completion_tokens=3),
        lambda b: b["choices"][0].update(token_ids=None),
        lambda b: b["choices"][0].update(token_ids=[3, -4]),
        lambda b: b["choices"][0].update(logprobs=None),
        lambda b: b["choices"][0]["logprobs"]["content"][0].update(logprob=1.0),
        lambda b: b["choices"][0]["logprobs"]["content"][0].update(logprob=float("-inf")),
        lambda b: b["choices"][0].update(finish_reason="abort"),
        lambda b: b.update(prompt_token_ids=[]),
        lambda b: b.pop("prompt_token_ids") and None,
        lambda b: b["choices"].append(b["choices"][0]),
        lambda b: b.update(choices=[]),
        lambda b: "<html>proxy error</html>",
    ],
)
async def test_a_reply_that_cannot_be_recorded_exactly_reaches_nobody(world, client, change):
    world.engine.misbehave.append(inexact(change))
    error = await refused(client)
    assert (error.status_code, error.code) == (502, "bad_upstream_reply")
    assert await world.counted() == 0
    await asyncio.sleep(0.1)
    assert not world.collector.spans


async def test_the_same_reply_unchanged_is_fine(world, client):
    world.engine.misbehave.append(inexact(lambda _: None))
    assert (await ask(client)).choices[0].message.content == "x"


async def test_an_agent_that_hangs_up_is_not_counted_and_frees_the_engine(world, client):
    world.engine.misbehave.append(hang)
    call = asyncio.create_task(ask(client))
    await world.until(lambda: world.engine.asked)
    call.cancel()
    await world.until(lambda: world.engine.cancelled)
    assert await world.counted() == 0
    await ask(client)
    assert [call.number for call in await world.collector.calls(1)] == [1]


async def test_an_agent_that_hangs_up_while_the_reply_is_counted_leaves_no_gap(world, client, monkeypatch):
    """Counted and recorded, or neither: whatever moment the agent chooses."""
    from leyden_ledger.calls import Calls

    count, counting = Calls.count, asyncio.Event()

    async def slow(self, *args):
        counting.set()
        await asyncio.sleep(0.2)
        return await count(self, *args)

    monkeypatch.setattr(Calls, "count", slow)
    call = asyncio.create_task(ask(client))
    await counting.wait()
    call.cancel()
    await world.collector.calls(1)
    assert await world.counted() == 1


async def test_a_ledger_that_is_away_is_503(world, client, monkeypatch):
    import redis.exceptions

    from leyden_ledger.calls import Calls

    async def away(*_):
        raise redis.exceptions.ConnectionError("refused")

    monkeypatch.setattr(Calls, "begin", away)
    error = await refused(client)
    assert (error.status_code, error.code) == (503, "ledger_unavailable")


async def test_a_restarted_replica_that_forgot_the_adapter_is_waited_for(world):
    await world.make_run()
    await world.ledger.training.publish("run-1", 1)
    await world.ledger.replicas.mark_ready("run-1", 1)
    await world.beat(adapter_name("run-1", "policy", 1))
    world.engine.misbehave.extend([status(404)] * 2)
    await ask(world.client(await world.gateway()))
    assert [asked["model"] for asked in world.engine.asked] == ["run-1--policy--v1"] * 3
