"""Requests at a gateway, in this process: how many answers, how long each took."""

import asyncio
import json
import time
from dataclasses import dataclass

import aiohttp

MESSAGES = [{"role": "system", "content": "You are an agent. " * 40}, {"role": "user", "content": "What is next?"}]


@dataclass(frozen=True)
class Target:
    """Somewhere to send chat completions to."""

    url: str
    key: str
    model: str


async def _each(session: aiohttp.ClientSession, target: Target, count: int, times: list[float]) -> None:
    body = json.dumps({"model": target.model, "messages": MESSAGES}).encode()
    headers = {"Authorization": f"Bearer {target.key}", "Content-Type": "application/json"}
    for _ in range(count):
        start = time.perf_counter()
        async with session.post(f"{target.url}/v1/chat/completions", data=body, headers=headers) as answer:
            text = await answer.read()
        if answer.status != 200:
            raise SystemExit(f"{target.url} answered {answer.status}: {text[:300]!r}")
        times.append(time.perf_counter() - start)


def send(target: Target, count: int, at_once: int) -> list[float]:
    """Send `count` requests, `at_once` at a time; return the seconds of each."""

    async def all_of_them() -> list[float]:
        times: list[float] = []
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            share = -(-count // at_once)
            await asyncio.gather(*(_each(session, target, share, times) for _ in range(at_once)))
        return times

    return asyncio.run(all_of_them())


async def _stream(session: aiohttp.ClientSession, target: Target, slow_s: float, tokens: int, state: dict) -> None:
    body = {"model": target.model, "messages": MESSAGES, "stream": True, "max_tokens": tokens, "slow_s": slow_s}
    headers = {"Authorization": f"Bearer {target.key}"}
    async with session.post(f"{target.url}/v1/chat/completions", json=body, headers=headers) as answer:
        if answer.status != 200:
            raise SystemExit(f"{target.url} answered {answer.status}: {(await answer.read())[:300]!r}")
        async for line in answer.content:
            if line.startswith(b"data: [DONE]"):
                state["whole"] += 1


async def streams(target: Target, count: int, slow_s: float, tokens: int, watch) -> int:
    """Open `count` slow streams at once, call `watch` while they all run; return how many came to their end."""
    state = {"whole": 0}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        tasks = [asyncio.create_task(_stream(session, target, slow_s, tokens, state)) for _ in range(count)]
        watching = asyncio.create_task(watch())
        await asyncio.gather(*tasks)
        watching.cancel()
    return state["whole"]
