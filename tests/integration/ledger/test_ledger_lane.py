"""Counts of calls share one connection: none is lost, none counts twice, and nobody gets another's reply."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from leyden_contracts import AttemptResult, RunSpec
from leyden_ledger import Ledger, TooManyCalls
from leyden_ledger.lane import Lane
from support.episodes import Planned, accept
from support.proxy import Proxy, proxy_to
from support.servers import find_port

RUN, EPISODE, MOST = "run-1", "g.0", 200


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    address = urlsplit(redis_url)
    assert address.hostname and address.port
    with proxy_to(address.hostname, address.port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def far(ledger: Ledger, proxy: Proxy) -> AsyncIterator[Ledger]:
    """The ledger behind the proxy, with an attempt that may make calls."""
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "episodes": {"max_calls": MOST}}
    assert await ledger.runs.create(RunSpec.model_validate(spec))
    await accept(ledger, RUN, [Planned(id="g")])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, EPISODE, "w", 60)
    far = Ledger.connect(f"redis://127.0.0.1:{proxy.port}/0")
    yield far
    await far.aclose()


@pytest_asyncio.fixture
async def lane(proxy: Proxy) -> AsyncIterator[Lane]:
    lane = Lane(BlockingConnectionPool(host="127.0.0.1", port=proxy.port, decode_responses=True), 0.5)
    yield lane
    await lane.aclose()


async def _held(proxy: Proxy) -> None:
    assert await asyncio.to_thread(proxy.held.wait, 30)


async def _counted(ledger: Ledger) -> int:
    """Return how many calls have been counted: the next one's number, less one."""
    return await ledger.calls.count(RUN, EPISODE, 1) - 1


async def test_many_at_once_share_a_connection(ledger: Ledger, far: Ledger) -> None:
    before = len(await ledger.redis.client_list())
    numbers = await asyncio.gather(*(far.calls.count(RUN, EPISODE, 1) for _ in range(MOST)))
    assert sorted(numbers) == list(range(1, MOST + 1))
    assert len(await ledger.redis.client_list()) == before + 1
    with pytest.raises(TooManyCalls):
        await far.calls.count(RUN, EPISODE, 1)


async def test_few_marks_are_kept_and_none_of_an_attempt_that_ended(ledger: Ledger, far: Ledger) -> None:
    kept, episode = [], f"leyden:{{{RUN}}}:e:{EPISODE}"
    for _ in range(40):
        number = await far.calls.count(RUN, EPISODE, 1)
        kept.append(len((await ledger.redis.hget(episode, "marks")).split()))
        assert number == len(kept)
    assert kept == [min(number, 32) for number in range(1, 41)]
    assert await ledger.episodes.close(RUN, EPISODE, 1, AttemptResult(outcome="graded", reward=1.0))
    assert not await ledger.redis.hexists(episode, "marks")


async def test_counts_whose_replies_are_lost_together_count_once(ledger: Ledger, far: Ledger, proxy: Proxy) -> None:
    await far.calls.count(RUN, EPISODE, 1)
    proxy.replies.clear()
    counts = [asyncio.create_task(far.calls.count(RUN, EPISODE, 1, samples)) for samples in (1, 3, 1, 2)]
    await _held(proxy)
    proxy.cut()
    proxy.replies.set()
    numbers = await asyncio.gather(*counts)
    assert sorted(numbers) == [2, 3, 6, 7], "each once, in the order in which they were sent"
    assert await _counted(ledger) == 8


async def test_a_connection_that_was_closed_is_opened_again(ledger: Ledger, far: Ledger) -> None:
    await far.calls.count(RUN, EPISODE, 1)
    await ledger.redis.client_kill_filter(_type="normal", skipme=True)
    await ledger.redis.script_flush()
    assert await far.calls.count(RUN, EPISODE, 1) == 2
    assert await far.calls.count(RUN, EPISODE, 1) == 3


async def test_who_leaves_takes_nobody_elses_reply(far: Ledger, lane: Lane, proxy: Proxy) -> None:
    await lane.run("PING")
    proxy.replies.clear()
    echoes = [asyncio.create_task(lane.run("ECHO", f"word-{number}")) for number in range(4)]
    await _held(proxy)
    echoes[1].cancel()
    await asyncio.wait([echoes[1]])
    proxy.replies.set()
    assert [await echo for echo in (echoes[0], *echoes[2:])] == ["word-0", "word-2", "word-3"]


async def test_a_refusal_is_its_own_commands(lane: Lane) -> None:
    answers = await asyncio.gather(
        lane.run("ECHO", "a"), lane.run("NO-SUCH"), lane.run("ECHO", "b"), return_exceptions=True
    )
    assert answers[0::2] == ["a", "b"] and isinstance(answers[1], ResponseError)


async def test_silence_ends_in_time_and_the_next_command_connects_anew(lane: Lane, proxy: Proxy) -> None:
    await lane.run("PING")
    proxy.replies.clear()
    for failed in await asyncio.gather(*(lane.run("PING") for _ in range(3)), return_exceptions=True):
        assert isinstance(failed, TimeoutError)
    proxy.replies.set()
    assert await lane.run("ECHO", "again") == "again"


async def test_a_server_that_does_not_greet_is_asked_once_for_all_and_not_for_ever() -> None:
    came: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: came.append(writer), "127.0.0.1", 0)
    async with server:
        lane = Lane(BlockingConnectionPool(port=server.sockets[0].getsockname()[1]), 0.5)
        failed = await asyncio.gather(*(lane.run("PING") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(error, TimeoutError) for error in failed)
        assert len(came) == 1
        for writer in came:
            writer.close()


async def test_nobody_there() -> None:
    with pytest.raises(ConnectionError):
        await Lane(BlockingConnectionPool(port=find_port()), 0.5).run("PING")
