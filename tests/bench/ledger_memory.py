"""What Redis remembers: of an episode under way, and of runs that have ended and were archived."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from ledger_parts import NOTHING, show

from leyden_contracts import RunSpec, episode_id, group_id
from leyden_ledger import Ledger, NewGroup, NewUpload
from leyden_ledger.archive import archive_run
from leyden_ledger.store import key, script_text
from leyden_storage import LocalStore
from support.servers import redis_server

RUN_EPISODES = 1000
BATCH = "0123456789ab" * 2
KB = 1024
FLAT_BYTES = 20
"""What an ended episode may leave in Redis: a run leaves a few KB, and ours have a thousand episodes."""


def groups(count: int) -> Iterator[NewGroup]:
    """Yield groups whose ids are as long as real ones."""
    for number in range(count):
        task = f"{number:024x}"
        yield NewGroup(group_id(task, BATCH, number), task, f"{BATCH}/{number // 10_000}#{number * 90}+90")


async def enter(ledger: Ledger, run: str, count: int) -> list[str]:
    """Make a run of `count` evaluation episodes; return their ids."""
    await ledger.runs.create(RunSpec.model_validate(NOTHING | {"id": run}))
    await ledger.uploads.register(run, NewUpload(BATCH, BATCH, count, 1, "eval"))
    new = list(groups(count))
    await ledger.uploads.enter(run, BATCH, 0, new, 1)
    return [episode_id(group.id, 0) for group in new]


_SCRIPTS = ("claim", "close", "due_assembly", "settle")


class Player:
    """Plays episodes to their end as workers and collectors would, in pipelines."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._scripts = {name: str(client.script_load(script_text(name))) for name in _SCRIPTS}

    def play(self, run: str, episodes: list[str]) -> None:
        """Run, close and settle `episodes`."""
        result = ("graded", "1.0", json.dumps({"exact": 1.0}), json.dumps("42"), "", "", "")
        self._all("claim", run, [(one, "worker", 60_000, f"claim{number}") for number, one in enumerate(episodes)])
        self._all("close", run, [(one, 1, *result) for one in episodes])
        batches = self._all("due_assembly", run, [(64, 512, 60_000)] * -(-len(episodes) // 64))
        # A batch's name is its number: this ledger was never lost.
        self._all("settle", run, [(first, number, number, *_pairs(members)) for first, number, members in batches])

    def _all(self, script: str, run: str, calls: list[tuple[Any, ...]]) -> list[Any]:
        pipe = self._client.pipeline(transaction=False)
        for call in calls:
            pipe.evalsha(self._scripts[script], 1, key(run, "run"), *call)
        answers = pipe.execute()
        if not all(answers):
            raise SystemExit(f"{script} was refused")
        return answers


def _pairs(members: list[Any]) -> list[Any]:
    return [len(members), *(part for member in members for part in (member[0], 1))]


async def live_kb(redis_url: str, count: int) -> float:
    """Return the KB of memory for each of `count` episodes that wait."""
    ledger = Ledger.connect(redis_url)
    before = await _used(ledger)
    await enter(ledger, "run-live", count)
    after = await _used(ledger)
    await ledger.redis.flushall()
    await ledger.aclose()
    return (after - before) / count / KB


async def ended(redis_url: str, store: LocalStore, count: int) -> tuple[float, float, float]:
    """Play `count` episodes in runs that end and are archived.

    Returns MB of memory after a tenth of them and at the end, and the bytes by which each of the others made it grow.
    """
    ledger, player = Ledger.connect(redis_url), Player(redis.Redis.from_url(redis_url))
    runs = max(count // RUN_EPISODES, 2)
    early = max(runs // 10, 1)
    marks = {}
    for number in range(1, runs + 1):
        run = f"run-{number:012x}"
        player.play(run, await enter(ledger, run, RUN_EPISODES))
        await ledger.runs.seal(run)
        await ledger.runs.finish(run)
        if not await archive_run(ledger, store, run):
            raise SystemExit(f"{run} was not archived")
        if number in (early, runs):
            marks[number] = (await ledger.redis.info("memory"))["used_memory"]
    await ledger.aclose()
    growth = (marks[runs] - marks[early]) / ((runs - early) * RUN_EPISODES)
    return marks[early] / KB**2, marks[runs] / KB**2, growth


async def _used(ledger: Ledger) -> int:
    return (await ledger.redis.info("memory"))["used_memory_dataset"]


def report(live: int, count: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name) / "redis") as redis_url:
        kb = asyncio.run(live_kb(redis_url, live))
        early, late, growth = asyncio.run(ended(redis_url, LocalStore(Path(name) / "store"), count))
    show("memory_kb_per_episode", kb, f"KB of Redis, {live} episodes that wait")
    show("memory_mb_early", early, f"MB of Redis after {count // 10} ended episodes")
    show("memory_mb_late", late, f"MB of Redis after {count} ended episodes")
    show("memory_growth_bytes", growth, "bytes of Redis for each ended episode", FLAT_BYTES)
