"""Replicas: who serves which version, by proof. A replica that stops beating is gone."""

from collections.abc import Sequence
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from leyden_ledger.store import ACTIVE, PUBLISHED, SERVED, Scripts

_IDS = "leyden:replicas"


class ReplicaStatus(BaseModel):
    """What an adapter_loader says of its replica."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    url: str
    """Base URL, without `/v1`."""
    base_model: str
    ready: list[str] = []
    """Adapter names whose proof succeeded."""
    rejected: dict[str, str] = {}
    """Adapter name -> why it is withheld."""


class Replicas:
    """The live replicas, and the versions that they must serve."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.redis

    async def beat(self, status: ReplicaStatus, ttl_s: float) -> None:
        """Say that the replica lives and what it serves, for `ttl_s` seconds."""
        await self._redis.set(f"leyden:replica:{status.id}", status.model_dump_json(), px=int(ttl_s * 1000))
        await self._redis.sadd(_IDS, status.id)

    async def leave(self, replica: str) -> None:
        """Take the replica off the list at once."""
        await self._redis.delete(f"leyden:replica:{replica}")
        await self._redis.srem(_IDS, replica)

    async def list(self) -> list[ReplicaStatus]:
        """Return the live replicas, by id."""
        ids = sorted(await self._redis.smembers(_IDS))
        pipe = self._redis.pipeline(transaction=False)
        for replica in ids:
            pipe.get(f"leyden:replica:{replica}")
        return [_status(text) for text in await pipe.execute() if text]

    async def mark_ready(self, run: str, version: int) -> bool:
        """Record that a replica has proved `version`; this lets the groups of the next step start."""
        return bool(await self._scripts.run("prove", run, (version,)))

    async def served_runs(self) -> Sequence[str]:
        """Return the runs whose versions replicas may have to serve, in alphabetical order: also ended ones."""
        return sorted({*await self._redis.smembers(ACTIVE), *await self._redis.smembers(SERVED)})

    async def published(self, after: str, wait_s: float) -> str:
        """Wait until a version has been published since `after`, or `wait_s`; return a mark for the next time.

        The first mark is `0`. `wait_s` is below the connection's own patience of 5 s. Whoever misses this finds the
        version in `wanted`.
        """
        found = await self._redis.xread({PUBLISHED: after}, block=int(wait_s * 1000))
        return str(found[0][1][-1][0]) if found else after

    async def wanted(self, run: str) -> set[int]:
        """Return the versions of `run` that replicas must serve, without 0 (the base model)."""
        return {int(version) for version in await self._scripts.run("wanted", run)} - {0}


# A gateway reads the list many times a second, and it seldom changes.
@lru_cache(maxsize=1000)
def _status(text: str) -> ReplicaStatus:
    return ReplicaStatus.model_validate_json(text)
