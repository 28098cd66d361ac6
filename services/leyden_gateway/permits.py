"""Leave to call, asked of the ledger once and then kept for a moment.

The fence is checked again when each reply is about to leave (`Calls.count`), so a permit that is out of date costs a
replica some work and lets nothing through.
"""

import time
from dataclasses import replace

from leyden_contracts import Pinning
from leyden_gateway.callers import Attempt
from leyden_ledger import CallPermit, Ledger

_KEPT_S = 5.0
_MOST_KEPT = 10_000


class Permits:
    """The permits of the attempts that call."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[Attempt, tuple[CallPermit, float]] = {}

    async def get(self, attempt: Attempt) -> CallPermit:
        """Return leave for `attempt` to make a call. Raises EpisodeNotFound, Fenced, TooManyCalls."""
        kept = self._kept.get(attempt)
        if kept is not None and time.monotonic() < kept[1]:
            return kept[0]
        self._kept.pop(attempt, None)
        permit = await self._ledger.calls.begin(attempt.run, attempt.episode, attempt.number)
        self._keep(attempt, permit)
        return permit

    async def pin(self, attempt: Attempt, version: int, what: Pinning) -> int:
        """Pin `version` for `attempt`; return the one that is pinned: a sibling call may have been first.

        Raises Fenced.
        """
        pinned = await self._ledger.calls.pin(attempt.run, attempt.episode, attempt.number, version, what)
        kept = self._kept.get(attempt)
        if kept is not None:
            self._kept[attempt] = (replace(kept[0], pinned=pinned), kept[1])
        return pinned

    def drop(self, attempt: Attempt) -> None:
        """Forget the permit: the attempt has been refused."""
        self._kept.pop(attempt, None)

    def _keep(self, attempt: Attempt, permit: CallPermit) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[attempt] = (permit, time.monotonic() + _KEPT_S)
