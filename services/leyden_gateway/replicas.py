"""Which replicas have proved that they serve a version, and which of them gets a call."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError

from leyden_contracts import RunSpec, adapter_name
from leyden_gateway.errors import ApiError
from leyden_ledger import Ledger, ReplicaStatus

_UNEVEN = 8
"""Calls in flight that a replica may have above the idlest one before a sticky episode moves."""
_AVOID_S = 1.0
"""How long a replica that has failed is the last choice."""
_NEWS_S = 5.0
"""A replica that stays down is told once, not by every call that waits for it."""
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_WATCH_S = 0.025
"""How often the list is read while calls wait for it to change: once for all of them."""


class Patience:
    """How long one call still waits for a replica. The clock starts with the first pause."""

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds, self._what = seconds, what
        self._until: float | None = None
        self._pauses = 0

    async def pause(self, wait: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Wait a little, longer each time. Raises ApiError (503) when patience has run out.

        `wait` is given the seconds, and may come back earlier: `Replicas.news` does when there is reason to look again.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now >= self._until:
            raise ApiError(503, "no_replica", f"no replica served {self._what} within {self._seconds:g} s")
        pause = _PAUSES[min(self._pauses, len(_PAUSES) - 1)]
        self._pauses += 1
        await wait(min(pause, self._until - now))


class Replicas:
    """The live replicas, from the ledger."""

    def __init__(self, ledger: Ledger, refresh_s: float) -> None:
        self._ledger = ledger
        self._refresh_s = refresh_s
        self._known: list[ReplicaStatus] = []
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()
        self._in_flight: Counter[str] = Counter()
        self._failed_at: dict[str, float] = {}
        self._watch: asyncio.Task[None] | None = None
        self._waiting = 0

    async def serving(self, spec: RunSpec, role: str, version: int) -> list[ReplicaStatus]:
        """Return the replicas that serve this version, by proof (the base model, 0, needs none)."""
        known = await self._list()
        same_base = [replica for replica in known if replica.base_model == spec.base_model]
        if version == 0:
            return same_base
        name = adapter_name(str(spec.id), role, version)
        return [replica for replica in same_base if name in replica.ready]

    async def newest(self, spec: RunSpec) -> int | None:
        """Return the newest version of which some replica serves every trained role; 0 if only the base model; None
        without a replica."""
        known = [replica for replica in await self._list() if replica.base_model == spec.base_model]
        if not known:
            return None
        return max(_newest(spec, replica.ready) for replica in known)

    def choose(self, among: list[ReplicaStatus], episode: str) -> ReplicaStatus:
        """Return the episode's own replica, whose prefix cache knows it; or the idlest if that one is busier."""
        now = time.monotonic()
        sound = [r for r in among if now - self._failed_at.get(r.id, float("-inf")) > _AVOID_S] or among
        own = max(sound, key=lambda replica: _weight(episode, replica.id))
        idlest = min(sound, key=lambda replica: self._in_flight[replica.id])
        return own if self._in_flight[own.id] - self._in_flight[idlest.id] <= _UNEVEN else idlest

    def failed(self, replica: ReplicaStatus) -> bool:
        """Make `replica` the last choice for a moment; say whether this is news: it had not failed lately."""
        now = time.monotonic()
        before = self._failed_at.get(replica.id, float("-inf"))
        self._failed_at[replica.id] = now
        return now - before > _NEWS_S

    async def news(self, timeout_s: float) -> None:
        """Return when the list of replicas has changed, or after `timeout_s`."""
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_list())
        self._waiting += 1
        try:
            await asyncio.wait([self._watch], timeout=timeout_s)
        finally:
            self._waiting -= 1

    @contextmanager
    def busy(self, replica: ReplicaStatus) -> Iterator[None]:
        """Count a call on `replica` as in flight."""
        self._in_flight[replica.id] += 1
        try:
            yield
        finally:
            self._in_flight[replica.id] -= 1

    async def _watch_list(self) -> None:
        """Read the list until it is another one, or nobody waits any more."""
        before = self._known
        while self._known == before:
            await asyncio.sleep(_WATCH_S)
            if not self._waiting:
                return
            try:
                await self._list(_WATCH_S / 2)
            except (RedisError, OSError):
                # Those who wait look for themselves in time, and tell their callers.
                await asyncio.sleep(_PAUSES[-1])

    async def _list(self, newer_than_s: float | None = None) -> list[ReplicaStatus]:
        oldest = self._refresh_s if newer_than_s is None else newer_than_s
        async with self._lock:
            if time.monotonic() - self._read_at > oldest:
                self._known = await self._ledger.replicas.list()
                self._read_at = time.monotonic()
            return self._known


def _newest(spec: RunSpec, ready: list[str]) -> int:
    whole: set[int] | None = None
    for role in spec.trained_roles:
        prefix = adapter_name(str(spec.id), role, 0)[:-1]
        served = {int(name.removeprefix(prefix)) for name in ready if name.startswith(prefix)}
        whole = served if whole is None else whole & served
    return max(whole or {0})


def _weight(episode: str, replica: str) -> bytes:
    """Rendezvous hashing: a replica that comes or goes moves only its own episodes."""
    return hashlib.blake2b(f"{episode}\n{replica}".encode(), digest_size=8).digest()
