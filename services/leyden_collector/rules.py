"""The rules by which a run makes intermediate rewards. They never change, so each run's are read once."""

from collections import OrderedDict

from leyden_contracts import SignalRules
from leyden_ledger import Ledger

_KEPT_RUNS = 256


class RunRules:
    """Reads runs' rules from the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[str, SignalRules] = OrderedDict()

    async def of(self, run: str) -> SignalRules:
        """Return the rules of `run`. Raises RunNotFound, redis.RedisError."""
        rules = self._kept.get(run)
        if rules is None:
            rules = self._kept[run] = (await self._ledger.runs.get(run)).signals
            if len(self._kept) > _KEPT_RUNS:
                self._kept.popitem(last=False)
        return rules
