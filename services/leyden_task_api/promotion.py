"""Promoting and rolling back: the store first, then the ledger.

The numbered objects in the store decide: who creates number n has promoted, and whoever had the same number in mind is
told. What a crash kept from the ledger is entered there before the next decision.
"""

import asyncio
import time
from collections.abc import Sequence

import structlog

from leyden_contracts import Promotion
from leyden_ledger import Ledger, Outpaced
from leyden_runtime.failpoints import failpoint
from leyden_storage import ObjectStore
from leyden_storage.promotions import stored_promotions, write_promotion

log = structlog.get_logger()


class NothingBefore(Exception):
    """There is no promotion to return to."""


class Promoter:
    """Changes what is promoted. Any number may work at once: of two decisions at the same time one is refused.

    Every method raises StoreError, redis.RedisError.
    """

    def __init__(self, ledger: Ledger, store: ObjectStore) -> None:
        self._ledger = ledger
        self._store = store

    async def history(self, run: str) -> list[Promotion]:
        """Return the run's promotions, oldest first; the ledger then knows all of them."""
        known = await self._ledger.promotions.history(run)
        new = await asyncio.to_thread(lambda: list(stored_promotions(self._store, run, len(known))))
        for promotion in new:
            await self._ledger.promotions.record(promotion)
        return known + new

    async def promote_best(self, history: Sequence[Promotion], run: str, version: int) -> Promotion:
        """Promote the version that `decide` chose after `history`. Raises Outpaced."""
        return await self._enter(history, run, version, "evaluation")

    async def promote(self, run: str, version: int) -> Promotion:
        """Promote what a person chose; if it is promoted already, nothing happens. Raises Outpaced."""
        history = await self.history(run)
        if history and history[-1].version == version:
            return history[-1]
        return await self._enter(history, run, version, "person")

    async def roll_back(self, run: str, undo: int | None = None) -> Promotion:
        """Return to the promotion before the one in force, or before number `undo`; a repeat of that changes nothing.

        Raises NothingBefore, Outpaced: `undo` is not in force.
        """
        history = await self.history(run)
        if not history:
            raise NothingBefore
        now = history[-1]
        if undo is not None and now.number != undo:
            if now.cause == "rollback" and now.number == undo + 1:
                return now
            raise Outpaced
        if now.before is None:
            raise NothingBefore
        return await self._enter(history, run, history[now.before - 1].version, "rollback")

    async def _enter(self, history: Sequence[Promotion], run: str, version: int, cause: str) -> Promotion:
        results = (await self._ledger.evaluations.progress(run)).results
        now = history[-1] if history else None
        before = _before(history, cause)
        promotion = Promotion.model_validate(
            {
                "run": run,
                "number": len(history) + 1,
                "version": version,
                "cause": cause,
                "score": results[version].score if version in results else None,
                "before": before.number if before else None,
                "predecessor": before.version if before else None,
                "floor": (now.floor if now else -1) if cause == "evaluation" else max(results, default=-1),
                "created": time.time(),
            }
        )
        if not await asyncio.to_thread(write_promotion, self._store, promotion):
            raise Outpaced
        failpoint("task_api.promoted")
        await self._ledger.promotions.record(promotion)
        log.info("version_promoted", **promotion.model_dump(exclude={"created", "floor"}))
        return promotion


def _before(history: Sequence[Promotion], cause: str) -> Promotion | None:
    """Return what a roll back from the next promotion returns to: from a roll back, one further."""
    if not history:
        return None
    if cause != "rollback":
        return history[-1]
    left = history[-1].before
    target = history[left - 1] if left else None
    return history[target.before - 1] if target and target.before else None
