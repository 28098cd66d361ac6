"""Whose run is it? A run's tenant and priority never change, so each is read once."""

from collections import OrderedDict

from leyden_ledger import Ledger

_KEPT = 10_000


class Owners:
    """Remembers the tenants and priorities of runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[str, tuple[str, int]] = OrderedDict()

    async def of(self, run: str) -> tuple[str, int]:
        """Return (tenant, priority) of `run`. Raises RunNotFound, redis.RedisError."""
        found = self._kept.get(run)
        if found is None:
            spec = await self._ledger.runs.get(run)
            found = self._kept[run] = (spec.tenant, spec.priority)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found
