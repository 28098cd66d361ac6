"""Requests of any kind over HTTP: answered or refused, never a 500, and what is refused is not counted."""

import json

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leyden_gateway.dialects import DIALECTS
from support.fuzz import VALID, bodies
from support.gateway import World
from support.played import Replica
from support.servers import find_port


@pytest.fixture
async def fuzzed(world: World):
    """A session, and the address of a gateway before a replica that answers everything."""
    replica = Replica(find_port())
    await replica.start()
    await world.make_run(roles={"policy": {}, "helper": {"trained": False}}, episodes={"max_calls": 100_000})
    await world.beat(url=replica.url)
    gateway = await world.gateway()
    headers = {"Authorization": f"Bearer {world.token(ttl_s=600)}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield session, gateway.url
    await replica.stop()


@pytest.mark.parametrize("path", DIALECTS)
@settings(max_examples=300, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_no_request_makes_a_500(world, fuzzed, path, data):
    session, url = fuzzed
    before = await world.counted()
    async with session.post(url + path, data=data.draw(bodies(path))) as response:
        answer = await response.read()
        assert response.status < 500, (response.status, answer)
        if response.status >= 400:
            assert isinstance(json.loads(answer), dict)
            assert await world.counted() == before


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize(
    "value", [b"1e999", b'"\xff"', b"9" * 5000, b"[" * 990 + b"]" * 990, b'{"a":' * 990 + b"1" + b"}" * 990]
)
async def test_no_rare_value_makes_a_500(fuzzed, path, value):
    """In every field of a valid request in turn: values that decoders and encoders stumble over."""
    session, url = fuzzed
    valid = {**VALID[path], "model": "helper"}
    for name in valid:
        rest = {key: value for key, value in valid.items() if key != name}
        body = json.dumps({**rest, "": 0}).encode().replace(b'"": 0', b'"%b": %b' % (name.encode(), value))
        async with session.post(url + path, data=body) as response:
            assert response.status < 500, (name, response.status, await response.read())


async def test_nesting_that_only_just_is_too_deep_makes_no_500(fuzzed):
    """What is barely read may be too deep to be written."""
    session, url = fuzzed
    statuses = set()
    for depth in range(900, 1010):
        deep = "[" * depth + "]" * depth
        body = '{"model": "policy", "input": "a", "tools": [{"type": "function", "name": "f", "parameters": DEEP}]}'
        async with session.post(f"{url}/v1/responses", data=body.replace("DEEP", deep)) as response:
            statuses.add(response.status)
    assert statuses == {200, 400}
