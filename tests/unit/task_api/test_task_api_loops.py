"""The loops go on whatever a round does, and stop when asked."""

import asyncio
import itertools
import time

from leyden_task_api.loops import forever


async def test_a_loop_survives_failures_backs_off_and_recovers() -> None:
    rounds: list[float] = []

    async def step() -> None:
        rounds.append(time.monotonic())
        if len(rounds) <= 3:
            raise ConnectionError("redis is away")

    stop = asyncio.Event()
    loop = asyncio.create_task(forever("test", step, 0.01, stop))
    await asyncio.sleep(1.0)
    stop.set()
    await asyncio.wait_for(loop, 1)
    pauses = [after - before for before, after in itertools.pairwise(rounds)]
    assert pauses[0] >= 0.1 and pauses[1] >= 0.2 and pauses[2] >= 0.4
    assert len(pauses) > 5 and max(pauses[3:]) < 0.15


async def test_stopping_does_not_wait_for_the_pause() -> None:
    async def step() -> None:
        raise AssertionError

    stop = asyncio.Event()
    loop = asyncio.create_task(forever("test", step, 60, stop))
    await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(loop, 0.5)
