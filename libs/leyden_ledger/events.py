"""Events: what happened in a run, as a stream to follow."""

from leyden_ledger.store import Scripts, key


class Events:
    """A run's events; the last 20,000 or so are kept."""

    def __init__(self, scripts: Scripts) -> None:
        self._redis = scripts.redis

    async def read(
        self, run: str, after: str = "0", block_ms: int | None = None, count: int = 500
    ) -> list[tuple[str, dict[str, str]]]:
        """Return events after id `after`; wait up to `block_ms` (below the socket's 5 s) for the first one."""
        found = await self._redis.xread({key(run, "events"): after}, count=count, block=block_ms)
        streams = found.values() if isinstance(found, dict) else [entries for _, entries in found or []]
        return [(event, fields) for entries in streams for event, fields in entries]
