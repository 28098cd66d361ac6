"""Whatever the way of the spans, the same trajectories come out, byte for byte."""

import asyncio
import random

import aiohttp

from support.replayed import Played, Sender, Stage, script, shuffled, stage

EPISODES = script(groups=6, size=4)
PATIENCE_S = 60


async def calmly(made: Stage, session: aiohttp.ClientSession) -> None:
    sender = Sender(made, session, 0)
    for one in EPISODES:
        await sender.send(one, one.spans)
        await made.close(one)


async def in_chaos(made: Stage, session: aiohttp.ClientSession, seed: int) -> None:
    """Eight senders, each with every eighth episode; a collector dies every now and then, and another one comes."""
    working = [asyncio.create_task(_one_of_eight(made, session, number, seed)) for number in range(8)]
    rng = random.Random(seed)
    done = asyncio.gather(*working)
    while not done.done():
        await asyncio.wait(working, timeout=0.4)
        made.kill_collector(rng.randrange(len(made.urls)))
        await asyncio.to_thread(made.add_collector)
    await done


async def _one_of_eight(made: Stage, session: aiohttp.ClientSession, number: int, seed: int) -> None:
    rng = random.Random(f"{seed}/{number}")
    sender = Sender(made, session, rng.randrange(2**31))
    for one in EPISODES[number::8]:
        # The agent's spans are flushed before the attempt is closed; the gateway's may come any time after.
        tools = [span for span in one.spans if not span.name.startswith("chat")]
        await sender.send(one, tools)
        early, late = _halves(one, rng)
        for part in early:
            await sender.send(one, part)
        await made.close(one)
        for part in late:
            await sender.send(one, part)


def _halves(one: Played, rng: random.Random) -> tuple[list, list]:
    parts = shuffled(one, rng)
    middle = rng.randint(0, len(parts))
    return parts[:middle], parts[middle:]


async def test_one_sender_and_one_collector_or_eight_three_and_chaos(tmp_path):
    results = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        async with stage(tmp_path / "calm", collectors=1) as made:
            await made.open(EPISODES)
            await calmly(made, session)
            await made.ended(EPISODES, PATIENCE_S)
            results.append(await made.result())
        async with stage(tmp_path / "chaos", collectors=3) as made:
            await made.open(EPISODES)
            await in_chaos(made, session, seed=1)
            await made.ended(EPISODES, PATIENCE_S)
            results.append(await made.result())
    calm, chaos = results
    assert len(calm) == len(EPISODES)
    assert calm == chaos
