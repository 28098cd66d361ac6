"""A gateway's world, for each test anew."""

from collections.abc import AsyncIterator

import pytest

from leyden_ledger import Ledger
from leyden_runtime.tokens import Tokens
from support.gateway import Collector, Engine, World
from support.servers import find_port


@pytest.fixture
async def world(ledger: Ledger, redis_url: str, signing_key: str) -> AsyncIterator[World]:
    tokens = Tokens(signing_key)
    engine, collector = Engine(find_port()), Collector(find_port(), tokens)
    await engine.start()
    await collector.start()
    world = World(ledger, tokens, engine, collector, redis_url, signing_key)
    yield world
    for client in world.clients:
        await client.close()
    for gateway in world.gateways:
        await gateway.finish()
    await engine.stop()
    await collector.stop()
