"""Spans reach the collector whatever it does, and are never dropped."""

import asyncio
import os
import signal
import sys

import httpx
import openai
import pytest
from aiohttp import web

from support.servers import find_port

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]


async def ask(client: openai.AsyncOpenAI) -> object:
    return await client.chat.completions.create(model="policy", messages=MESSAGES)


@pytest.fixture
async def ready(world):
    await world.make_run()
    await world.beat()
    return world


@pytest.mark.parametrize("status", [500, 503, 429, 401, 404])
async def test_a_refusal_is_repeated_until_the_spans_are_stored(ready, status):
    ready.collector.answers.extend([status] * 3)
    await ask(ready.client(await ready.gateway()))
    await ready.collector.calls(1)
    assert ready.collector.tries == 4


async def test_a_collector_that_is_away_gets_everything_later(ready):
    await ready.collector.stop()
    client = ready.client(await ready.gateway())
    for _ in range(3):
        await ask(client)
    await ready.collector.start()
    assert [call.number for call in await ready.collector.calls(3)] == [1, 2, 3]


async def test_a_full_queue_refuses_calls_before_they_are_forwarded(ready):
    await ready.collector.stop()
    client = ready.client(await ready.gateway(span_queue=2))
    for _ in range(2):
        await ask(client)
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client)
    assert (caught.value.status_code, caught.value.code) == (503, "spans_backlog")
    assert len(ready.engine.asked) == 2
    await ready.collector.start()
    await ready.collector.calls(2)
    async with asyncio.timeout(5):
        while True:
            try:
                await ask(client)
                break
            except openai.InternalServerError:
                await asyncio.sleep(0.05)
    assert [call.number for call in await ready.collector.calls(3)] == [1, 2, 3]
    assert await ready.counted() == 3


async def test_calls_in_flight_hold_their_place_in_the_queue(ready):
    release = asyncio.Event()

    async def held(_, __):
        await release.wait()
        return web.json_response({"error": "later"}, status=400)

    ready.engine.misbehave.append(held)
    client = ready.client(await ready.gateway(span_queue=1))
    first = asyncio.create_task(ask(client))
    await ready.until(lambda: ready.engine.asked)
    with pytest.raises(openai.InternalServerError):
        await ask(client)
    release.set()
    with pytest.raises(openai.BadRequestError):
        await first
    await ask(client)


async def test_a_batch_that_is_too_large_is_halved(ready):
    ready.collector.largest = 1
    client = ready.client(await ready.gateway(span_delay_s=0.3))
    await asyncio.gather(*(ask(client) for _ in range(5)))
    assert len(await ready.collector.calls(5)) == 5


async def test_spans_share_requests(ready):
    client = ready.client(await ready.gateway(span_delay_s=0.3))
    await asyncio.gather(*(ask(client) for _ in range(5)))
    await ready.collector.calls(5)
    assert ready.collector.tries == 1


async def test_rejected_spans_are_counted(ready):
    ready.collector.reject = 1
    gateway = await ready.gateway()
    before = await metric(gateway.url, 'leyden_gateway_spans_total{outcome="rejected"}')
    await ask(ready.client(gateway))
    await ready.collector.calls(1)
    await asyncio.sleep(0.05)
    assert await metric(gateway.url, 'leyden_gateway_spans_total{outcome="rejected"}') == before + 1


async def metric(url: str, name: str) -> float:
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{url}/metrics")).text
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(name)), 0.0)


async def test_a_stop_finishes_the_calls_in_flight_and_hands_over_every_span(ready):
    gateway = await ready.gateway(span_delay_s=0.5)
    client = ready.client(gateway)
    started = asyncio.Event()

    async def slow(_, __):
        started.set()
        await asyncio.sleep(0.4)
        return web.json_response(
            {
                "id": "c1",
                "created": 1,
                "prompt_token_ids": [1],
                "usage": {"completion_tokens": 1},
                "choices": [
                    {
                        "message": {"role": "assistant", "content": "late"},
                        "finish_reason": "stop",
                        "token_ids": [3],
                        "logprobs": {"content": [{"logprob": -0.5}]},
                    }
                ],
            }
        )

    ready.engine.misbehave.append(slow)
    call = asyncio.create_task(ask(client))
    await started.wait()
    await gateway.finish()
    assert (await call).choices[0].message.content == "late"
    assert len(ready.collector.spans) == 1


def environment(world, **changes: str) -> dict[str, str]:
    settings = {
        "LEYDEN_REDIS_URL": world.redis_url,
        "LEYDEN_SIGNING_KEY": world.signing_key,
        "LEYDEN_COLLECTOR_URL": world.collector.url,
        "LEYDEN_GATEWAY_PORT": "0",
    }
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")}
    return {**clean, **settings, **changes}


async def test_the_process_serves_and_stops_on_sigterm(ready):
    port = find_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "leyden_gateway", env=environment(ready, LEYDEN_GATEWAY_PORT=str(port))
    )
    try:
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=ready.token(), max_retries=20)
        await ask(client)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert len(ready.collector.spans) == 1
        await client.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"LEYDEN_SIGNING_KEY": "short"}, "LEYDEN_SIGNING_KEY"),
        ({"LEYDEN_GATEWAY_REPLICA_WAIT": "1"}, "LEYDEN_GATEWAY_REPLICA_WAIT"),
    ],
)
async def test_wrong_settings_exit_with_2(world, changes, named):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "leyden_gateway",
        env=environment(world, **changes),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert named in errors.decode()
