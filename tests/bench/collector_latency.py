"""From the close of a group's last attempt to the group's announcement to the learner, its trajectory stored."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import aiohttp
from figures import show
from ledger_parts import KEY, service

from leyden_contracts import AttemptResult, RunSpec
from leyden_ledger import Ledger
from leyden_runtime.tokens import Scope, Tokens
from support.episodes import Planned, accept
from support.servers import redis_server
from support.spans import call_span, request, transition

RUN = "bench"
CALLS = 3


async def _one(ledger: Ledger, session: aiohttp.ClientSession, url: str, group: str) -> float:
    """Play a group of one episode; return the seconds from its close to the announcement."""
    episode = f"{group}.0"
    assert await ledger.episodes.claim(RUN, episode, "bench", 600)
    for _ in range(CALLS):
        await ledger.calls.count(RUN, episode, 1)
    calls = [transition(number, run=RUN, episode=episode, tokens=256) for number in range(1, CALLS + 1)]
    headers = {
        "Authorization": f"Bearer {Tokens(KEY).mint(Scope.SPANS, 3600)}",
        "Content-Type": "application/x-protobuf",
    }
    body = request(*map(call_span, calls)).SerializeToString()
    async with session.post(f"{url}/v1/traces", data=body, headers=headers) as answer:
        assert answer.status == 200
    started = time.perf_counter()
    finished = (await ledger.runs.summary(RUN)).groups_finished
    assert await ledger.episodes.close(RUN, episode, 1, AttemptResult(outcome="graded", reward=1.0))
    while (await ledger.runs.summary(RUN)).groups_finished == finished:
        await asyncio.sleep(0.0005)
    return time.perf_counter() - started


async def _play(redis_url: str, url: str, groups: int) -> list[float]:
    ledger = Ledger.connect(redis_url)
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "algorithm": {"groups_per_step": 10**6}}
    await ledger.runs.create(RunSpec.model_validate(spec))
    names = [f"g{number}" for number in range(groups)]
    await accept(ledger, RUN, [Planned(name, size=1) for name in names])
    await ledger.episodes.release(RUN)
    async with aiohttp.ClientSession() as session:
        seconds = [await _one(ledger, session, url, name) for name in names]
    await ledger.aclose()
    return seconds


def report(groups: int) -> None:
    """Measure and print."""
    with (
        tempfile.TemporaryDirectory() as name,
        redis_server(Path(name) / "redis") as redis_url,
        service("collector", Path(name), redis_url) as (_, url),
    ):
        seconds = asyncio.run(_play(redis_url, url, groups))[5:]
    cuts = statistics.quantiles(seconds, n=100)
    show("collector.close_to_announced_ms", cuts[49] * 1000, "ms, p50 of lone attempts")
    show("collector.close_to_announced_p99_ms", cuts[98] * 1000, "ms, p99")
