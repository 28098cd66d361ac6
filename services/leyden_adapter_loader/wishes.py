"""Which adapters the runs want of a replica: the ledger asked often for runs that train, seldom for ended ones."""

import asyncio
import time
from dataclasses import dataclass

import structlog

from leyden_adapter_loader.names import Adapter
from leyden_ledger import Ledger, RunNotFound, RunState

log = structlog.get_logger()
_AT_ONCE = 16
"""Questions to the ledger under way: a server that has run for months has many ended runs."""
_ENDED = (RunState.FINISHED, RunState.CANCELLED)


@dataclass(slots=True)
class _Run:
    roles: tuple[str, ...]
    """The trained ones."""
    ended: bool = False
    adapters: frozenset[Adapter] = frozenset()


class Wishes:
    """The wanted versions of every run on one base model."""

    def __init__(self, ledger: Ledger, base_model: str, runs_s: float) -> None:
        self._ledger = ledger
        self._base_model = base_model
        self._runs_s = runs_s
        self._runs: dict[str, _Run | None] = {}
        """None: a run on another base model. Specifications never change, so each is read once."""
        self._listed_at = float("-inf")
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def read(self) -> set[Adapter]:
        """Return what replicas must serve now. Raises RedisError, LedgerError."""
        listing = time.monotonic() - self._listed_at >= self._runs_s
        if listing:
            await self._list()
        ours = {run: known for run, known in self._runs.items() if known}
        asked = [(run, known) for run, known in ours.items() if listing or not known.ended]
        await asyncio.gather(*(self._ask(run, known) for run, known in asked))
        if listing:
            self._listed_at = time.monotonic()
        return {adapter for known in ours.values() for adapter in known.adapters}

    async def _ask(self, run: str, known: _Run) -> None:
        async with self._gate:
            versions = await self._ledger.replicas.wanted(run)
        known.adapters = frozenset(Adapter(run, role, version) for role in known.roles for version in versions)

    async def _list(self) -> None:
        ids = await self._ledger.replicas.served_runs()
        self._runs = {run: await self._look_at(run) for run in ids}

    async def _look_at(self, run: str) -> _Run | None:
        try:
            if run not in self._runs:
                self._runs[run] = await self._meet(run)
            known = self._runs[run]
            if known and not known.ended:
                known.ended = (await self._ledger.runs.summary(run)).state in _ENDED
        except RunNotFound:
            return None
        return known

    async def _meet(self, run: str) -> _Run | None:
        try:
            spec = await self._ledger.runs.get(run)
            for role in spec.trained_roles:
                Adapter(run, role, 1)
        except ValueError as error:
            # A specification that this version cannot read, or a name that must not touch a path.
            log.error("run_ignored", run=run, reason=str(error))
            return None
        return _Run(spec.trained_roles) if spec.base_model == self._base_model else None
