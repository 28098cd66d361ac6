"""Redis goes away, hangs and comes back: callers get 503 in bounded time, and the loops go on by themselves."""

import asyncio
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from leyden_client import ApiUnreachable, LeydenClient
from leyden_contracts import RunSpec
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from leyden_task_api.dispatcher import Dispatcher
from leyden_task_api.feeder import Feeder
from leyden_task_api.loops import forever, reconcile
from leyden_task_api.settings import TaskApiSettings
from support.episodes import Planned, accept
from support.proxy import proxy_to
from support.servers import find_port, redis_server
from support.task_api import SPEC, task_api

RUN = RunSpec.model_validate({**SPEC, "id": "mine"})


def groups(*names: str) -> list[Planned]:
    return [Planned(name) for name in names]


def test_callers_get_503_while_redis_is_down_and_answers_when_it_is_back(
    settings: TaskApiSettings, token: str, tmp_path: Path
) -> None:
    port = find_port()
    away = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{port}/0"})
    with task_api(away) as url, httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as http:
        for ask in (
            partial(http.get, "/v1/runs"),
            partial(http.post, "/v1/runs", json={**SPEC, "id": "mine"}),
            partial(http.post, "/v1/runs/mine/tasks", json={"input": 1}),
            partial(http.get, "/v1/runs/mine/events"),
        ):
            started = time.monotonic()
            answer = ask(timeout=15)
            assert time.monotonic() - started < 10
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
            assert answer.headers["retry-after"]
        assert http.get("/healthz").status_code == 200
        with redis_server(tmp_path / "redis", port):
            assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201


def test_a_redis_that_hangs_does_not_hang_its_callers(settings: TaskApiSettings, token: str, redis_url: str) -> None:
    host, port = redis_url.removeprefix("redis://").removesuffix("/0").split(":")
    with proxy_to(host, int(port)) as proxy:
        hung = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{proxy.port}/0", "answer_within_s": 1})
        with task_api(hung) as url, httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as http:
            assert http.get("/v1/runs").status_code == 200
            proxy.replies.clear()
            started = time.monotonic()
            assert http.get("/v1/runs", timeout=15).status_code == 503
            assert time.monotonic() - started < 3
            proxy.replies.set()
            assert http.get("/v1/runs").status_code == 200


def test_the_client_tells_when_nobody_answers_and_waits_for_one_who_comes_late(
    settings: TaskApiSettings, token: str
) -> None:
    port = find_port()
    with LeydenClient(f"http://127.0.0.1:{port}", token, patience_s=1) as client:
        with pytest.raises(ApiUnreachable, match=str(port)):
            list(client.runs())
        patient = LeydenClient(f"http://127.0.0.1:{port}", token, patience_s=20)
        with task_api(settings, port), patient:
            assert list(patient.runs()) == []


async def test_the_dispatcher_rings_for_what_is_due_and_again_for_what_nobody_claims(
    ledger: Ledger, store: LocalStore
) -> None:
    rung: list[tuple[str, str]] = []
    settings = TaskApiSettings.model_validate({"ring_again_s": 0.2})
    await ledger.runs.create(RUN)
    await accept(ledger, "mine", groups("a", "b", "c"))
    step = Dispatcher(ledger, Feeder(ledger, store, 100), rung.extend, lambda: 0, settings).round
    # Two groups a step, and no version has been proved yet: the third group must wait.
    assert await step() == 4
    assert sorted(rung) == [("mine", "a.0"), ("mine", "a.1"), ("mine", "b.0"), ("mine", "b.1")]
    assert await step() == 0
    await ledger.episodes.claim("mine", "a.0", "worker", 60)
    await asyncio.sleep(0.25)
    assert await step() == 3


async def test_the_reconciler_ends_attempts_whose_worker_is_gone(ledger: Ledger) -> None:
    settings = TaskApiSettings()
    await ledger.runs.create(RUN)
    await accept(ledger, "mine", groups("a"))
    await ledger.episodes.release("mine")
    await ledger.episodes.claim("mine", "a.0", "worker", 0.05)
    await asyncio.sleep(0.1)
    assert await reconcile(ledger, settings) == 1
    assert (await ledger.episodes.get("mine", "a.0")).reason == "worker_lost"
    assert await reconcile(ledger, settings) == 0


async def test_the_dispatcher_goes_on_after_a_redis_outage_and_a_failed_ring(tmp_path: Path, store: LocalStore) -> None:
    rung: list[tuple[str, str]] = []
    broken = [True]

    def ring(pairs: list[tuple[str, str]]) -> None:
        if broken.pop() if broken else False:
            raise OSError("the broker is away")
        rung.extend(pairs)

    port, stop = find_port(), asyncio.Event()
    ledger = Ledger.connect(f"redis://127.0.0.1:{port}/0")
    settings = TaskApiSettings.model_validate({"ring_again_s": 0.1})
    dispatcher = Dispatcher(ledger, Feeder(ledger, store, 100), ring, lambda: 0, settings)
    loop = asyncio.create_task(forever("dispatcher", dispatcher.round, 0.02, stop))
    with redis_server(tmp_path / "redis", port, appendonly=True):
        await ledger.runs.create(RUN)
        await accept(ledger, "mine", groups("a"))
        await asyncio.sleep(0.6)
        assert ("mine", "a.0") in rung
    await asyncio.sleep(0.5)
    rung.clear()
    with redis_server(tmp_path / "redis", port, appendonly=True):
        for _ in range(80):
            await asyncio.sleep(0.1)
            if rung:
                break
        assert ("mine", "a.0") in rung
        stop.set()
        await loop
        await ledger.aclose()


async def test_a_run_without_episodes_is_looked_at_seldom(ledger: Ledger, store: LocalStore) -> None:
    await ledger.runs.create(RUN)
    rung: list[tuple[str, str]] = []
    dispatcher = Dispatcher(ledger, Feeder(ledger, store, 100), rung.extend, lambda: 0, TaskApiSettings())
    before = (await ledger.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    for _ in range(20):
        await dispatcher.round()
    assert (await ledger.redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before <= 2
    await accept(ledger, "mine", groups("a"))
    async with asyncio.timeout(2):
        while not rung:
            await dispatcher.round()
            await asyncio.sleep(0.05)
