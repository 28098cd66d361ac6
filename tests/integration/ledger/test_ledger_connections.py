"""Thousands of commands at once share a few connections, and none is refused."""

import asyncio

from leyden_ledger import Ledger


async def test_a_thousand_commands_at_once(ledger: Ledger) -> None:
    assert await asyncio.gather(*(ledger.redis.ping() for _ in range(1000))) == [True] * 1000
    assert len(await ledger.redis.client_list()) < 300
