"""The connection to Redis, and the scripts: every state change is one of them."""

import contextlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import BusyLoadingError, ConnectionError, NoScriptError

from leyden_ledger.lane import Lane

_CLUSTER = "redis+cluster://"
_CONNECTIONS = 256
"""Of one process; more commands than this at once take turns."""
_WAIT_S = 5
_FOLDER = Path(__file__).parent / "scripts"
ACTIVE = "leyden:active"
"""The runs that may have work."""
RESTING = "leyden:resting"
"""The others, until they are archived, by the time they came to rest (seconds, Redis's clock)."""
KEEPING = "leyden:keeping"
"""The archived runs whose stored data wants care, by when (seconds, Redis's clock)."""
SERVED = "leyden:served"
"""The runs with versions that replicas must serve, also when the run has ended."""
PUBLISHED = "leyden:published"
"""A stream that tells loaders at once of what `served` and the runs will tell them anyhow."""
ATTEMPTS_APART = 1_000_000
"""Between the attempts of an episode before and after its ledger was lost: more than any episode has."""
Argument = str | int | float


@cache
def script_text(name: str) -> str:
    """Return the whole text of script `name`, common part included."""
    return "\n".join((_FOLDER / f"{part}.lua").read_text() for part in ("_common", name))


class Scripts:
    """Runs scripts by name against one Redis."""

    def __init__(self, redis: Redis | RedisCluster) -> None:
        # Any: redis-py's annotations know neither `decode_responses` nor which client they are for.
        self.redis: Any = redis
        self._loaded: dict[str, AsyncScript] = {}
        pool = getattr(redis, "connection_pool", None)
        self._lane = None if pool is None else Lane(pool, _WAIT_S)

    @classmethod
    def connect(cls, url: str) -> "Scripts":
        """Open a connection pool; nothing is sent yet."""
        limits: Any = {"socket_timeout": 5, "socket_connect_timeout": 2, "health_check_interval": 15}
        if url.startswith(_CLUSTER):
            # Its own retries follow slots that move from node to node.
            single = url.replace(_CLUSTER, "redis://", 1)
            return cls(RedisCluster.from_url(single, decode_responses=True, **limits))
        retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), 3, supported_errors=(ConnectionError, BusyLoadingError))
        # A pool that waits: redis-py's own refuses whoever comes when all its connections are busy.
        pool = BlockingConnectionPool.from_url(
            url, max_connections=_CONNECTIONS, timeout=_WAIT_S, decode_responses=True, retry=retry, **limits
        )
        return cls(Redis.from_pool(pool))

    async def activate(self, run: str) -> None:
        """Enter `run` among those with work."""
        await self.redis.sadd(ACTIVE, run)
        await self.redis.zrem(RESTING, run)

    async def run(self, name: str, run: str, args: Sequence[Argument] = ()) -> Any:
        """Run script `name` on `run`'s keys."""
        return await self._script(name)(keys=[key(run, "run")], args=list(args))

    async def run_fast(self, name: str, run: str, args: Sequence[Argument] = ()) -> Any:
        """Run a script that takes Redis no time, on the connection that all such share. Raises like `run`."""
        if self._lane is not None:
            script, rest = self._script(name), (1, key(run, "run"), *args)
            # A connection that was lost: one of the pool goes on, which waits, connects and repeats.
            with contextlib.suppress(ConnectionError):
                try:
                    return await self._lane.run("EVALSHA", script.sha, *rest)
                except NoScriptError:
                    return await self._lane.run("EVAL", script_text(name), *rest)
        return await self.run(name, run, args)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._lane is not None:
            await self._lane.aclose()
        await self.redis.aclose()

    def _script(self, name: str) -> AsyncScript:
        script = self._loaded.get(name)
        if script is None:
            script = self._loaded[name] = self.redis.register_script(script_text(name))
        return script


def key(run: str, name: str) -> str:
    """Return one of `run`'s keys; the braces keep all of them on one cluster node."""
    return f"leyden:{{{run}}}:{name}"
