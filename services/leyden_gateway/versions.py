"""Which policy version an attempt uses: the newest that is ready, pinned for as long as the run says."""

from leyden_contracts import RunSpec
from leyden_gateway.callers import Attempt
from leyden_gateway.permits import Permits
from leyden_gateway.replicas import Patience, Replicas
from leyden_ledger import CallPermit, Ledger


class Versions:
    """Chooses and pins versions."""

    def __init__(self, ledger: Ledger, permits: Permits, replicas: Replicas) -> None:
        self._ledger = ledger
        self._permits = permits
        self._replicas = replicas

    async def of(self, attempt: Attempt, permit: CallPermit, spec: RunSpec, role: str, patience: Patience) -> int:
        """Return the version that answers this call: the base for a frozen role, else the attempt's pinned one.

        Raises:
            Fenced: the attempt has lost.
            ApiError: 503, no replica serves what the run has reached.
        """
        if not spec.roles[role].trained:
            return 0
        each_call = spec.pinning == "call" and permit.wanted is None
        if permit.pinned is not None and not each_call:
            return permit.pinned
        version = permit.wanted
        if version is None:
            version = await self._newest(spec, patience)
        if version == permit.pinned:
            return version
        return await self._permits.pin(attempt, version, "episode" if permit.wanted is not None else spec.pinning)

    async def _newest(self, spec: RunSpec, patience: Patience) -> int:
        """Return the newest version that is ready, and never one older than the run has reached.

        The staleness bound let this episode start because that version was ready. When its replicas restart, an
        older version, or the base, would be too stale to train on: wait instead.
        """
        reached = (await self._ledger.runs.summary(str(spec.id))).version_ready
        while True:
            newest = await self._replicas.newest(spec)
            if newest is not None and newest >= reached:
                return newest
            await patience.pause(self._replicas.news)
