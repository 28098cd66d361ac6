"""Requests of any kind over HTTP: answered or refused, never a 500, and what is refused is not counted."""

import json

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings

from leyden_gateway.dialects import DIALECTS
from support.fuzz import BODIES
from support.gateway import World
from support.played import Replica
from support.servers import find_port


@pytest.fixture
async def fuzzed(world: World):
    """A session, and the address of a gateway before a replica that answers everything."""
    replica = Replica(find_port())
    await replica.start()
    await world.make_run(
        roles={"policy": {}, "helper": {"trained": False, "models": ["m"]}}, episodes={"max_calls": 100_000}
    )
    await world.beat(url=replica.url)
    gateway = await world.gateway()
    headers = {"Authorization": f"Bearer {world.token(ttl_s=600)}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield session, gateway.url
    await replica.stop()


@pytest.mark.parametrize("path", DIALECTS)
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(body=BODIES)
async def test_no_request_makes_a_500(world, fuzzed, path, body):
    session, url = fuzzed
    before = await world.counted()
    async with session.post(url + path, data=body) as response:
        answer = await response.read()
        assert response.status < 500, (response.status, answer)
        if response.status >= 400:
            assert isinstance(json.loads(answer), dict)
            assert await world.counted() == before
