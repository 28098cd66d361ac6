"""Uploads: whole sets of tasks that take their place in a run's order at once and become episodes a window at a time.

So an upload of a million tasks costs the ledger one small entry; Redis holds the episodes that may run soon, and the
object store the rest.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leyden_contracts import Purpose
from leyden_ledger.errors import BacklogFull, Conflict, Sealed
from leyden_ledger.store import Scripts, key

_ENTER_AT_ONCE = 400
"""Episodes that one script makes: some 10 ms in which Redis serves nobody else."""
_UNDER_WAY = 4
MOST_EPISODES = 20_000_000
"""Episodes that may wait or run in one run."""


@dataclass(frozen=True, slots=True)
class NewUpload:
    """An upload that is in the object store."""

    batch: str
    fingerprint: str
    """Of its content and its parameters."""
    groups: int
    size: int
    """Episodes of each group."""
    purpose: Purpose
    version: int | None = None
    """Version to evaluate; None for the newest."""


class NewGroup(NamedTuple):
    """A group to enter."""

    id: str
    task: str
    ref: str
    """Where the task's line is among the run's uploads: `batch/part#offset+length`, in bytes."""


@dataclass(frozen=True, slots=True)
class Window:
    """The next groups of an upload that Redis has room for."""

    batch: str
    start: int
    """Number of the first task, from 0."""
    count: int
    size: int
    """Episodes of each group."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What `register` did."""

    repeated: bool
    """It had been registered before; nothing was made twice."""


class Uploads:
    """What the task API does with uploads."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.redis

    async def check(self, run: str, upload: NewUpload, most: int = MOST_EPISODES) -> Registered:
        """Say what `register` would do, and do nothing. Raises as it does."""
        return await self._register(run, upload, most, only_ask=True)

    async def register(self, run: str, upload: NewUpload, most: int = MOST_EPISODES) -> Registered:
        """Accept an upload: from here on each of its episodes ends exactly once (I1). Safe to repeat.

        Raises Conflict (its batch is another upload's), Sealed, BacklogFull.
        """
        done = await self._register(run, upload, most, only_ask=False)
        # After the run's own keys, which may live on another node; a client's retry repairs a crash between the two.
        await self._scripts.activate(run)
        return done

    async def _register(self, run: str, upload: NewUpload, most: int, only_ask: bool) -> Registered:
        version = "" if upload.version is None else upload.version
        head = (upload.batch, upload.fingerprint, upload.groups, upload.size, upload.purpose, version)
        outcome, *more = await self._scripts.run("register_upload", run, (*head, most, int(only_ask)))
        if outcome == "conflict":
            raise Conflict
        if outcome == "sealed":
            raise Sealed
        if outcome == "full":
            raise BacklogFull(more[0], most)
        return Registered(outcome == "repeated")

    async def windows(self, run: str, ahead: int) -> list[Window]:
        """Return what to enter next, so that `ahead` episodes of each purpose wait in Redis."""
        return [Window(*found) for found in await self._scripts.run("windows", run, (ahead,))]

    async def enter(self, run: str, batch: str, start: int, groups: Sequence[NewGroup], size: int = 8) -> int:
        """Enter an upload's groups from number `start` on; return how many. Stops where somebody else was faster.

        `size` is the upload's, as far as it is known: large groups are entered fewer at a time.
        """
        step = max(_ENTER_AT_ONCE // size, 1)
        gate = asyncio.Semaphore(_UNDER_WAY)  # so that Redis never waits for us

        async def enter_part(first: int) -> int:
            async with gate:
                return await self._enter(run, batch, start + first, groups[first : first + step])

        entered = 0
        while entered < len(groups):
            # Should one part overtake another it is refused, and sent again.
            made = sum(await asyncio.gather(*map(enter_part, range(entered, len(groups), step))))
            if not made:
                break
            entered += made
        return entered

    async def _enter(self, run: str, batch: str, start: int, groups: Sequence[NewGroup]) -> int:
        args = [value for group in groups for value in (group.id, group.task, group.ref)]
        return await self._scripts.run("enter", run, (batch, start, *args))

    async def entered(self, run: str, batch: str) -> int:
        """Return how many of an upload's groups have been entered."""
        upload, count = (
            await self._redis.hget(key(run, "uploads"), batch),
            await self._redis.hget(key(run, "entered"), batch),
        )
        known = json.loads(upload or "{}")
        return known["groups"] if known.get("done") else int(count or 0)

    async def registered(self, run: str) -> dict[str, int]:
        """Return upload -> groups of all that have been registered."""
        found = await self._redis.hgetall(key(run, "uploads"))
        return {batch: json.loads(upload)["groups"] for batch, upload in found.items()}
