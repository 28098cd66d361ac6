"""Keeping: which archived runs' stored data wants care now, and whose turn it is."""

from collections.abc import Sequence

from redis.asyncio.lock import Lock

from leyden_ledger.store import KEEPING, Scripts, key


class Keeping:
    """What the keeper asks of and tells the ledger."""

    def __init__(self, scripts: Scripts) -> None:
        self._redis = scripts.redis

    async def now(self) -> float:
        """Return the time that counts: the server's, in seconds since the epoch."""
        return float((await self._redis.time())[0])

    async def due(self, count: int) -> Sequence[tuple[str, float]]:
        """Return up to `count` (run, since when) whose time has come, longest first."""
        return await self._redis.zrangebyscore(KEEPING, "-inf", await self.now(), start=0, num=count, withscores=True)

    async def is_due(self, run: str) -> bool:
        """Say whether the run's time has come: somebody else may have cared for it since `due`."""
        at = await self._redis.zscore(KEEPING, run)
        return at is not None and at <= await self.now()

    def turn(self, run: str, lease_s: float) -> Lock:
        """Return the run's lock: whoever holds it cares for the run, and nobody else need to meanwhile."""
        return Lock(self._redis, key(run, "keeper"), timeout=lease_s, blocking=False)

    async def archive(self, run: str) -> str | None:
        """Return the number of the run's newest archive."""
        return await self._redis.hget(key(run, "run"), "archive")

    async def again(self, run: str, at: float | None, archive: str | None) -> None:
        """Say when the run wants care again, None: never; now, if it has been archived anew since `archive`."""
        if at is None:
            await self._redis.zrem(KEEPING, run)
        else:
            await self._redis.zadd(KEEPING, {run: at})
        if await self.archive(run) != archive:
            await self._redis.zadd(KEEPING, {run: await self.now()})
