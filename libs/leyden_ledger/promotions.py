"""Promotions: which version of a run is the one to use, and which ones were before.

The object store has the record (`runs/RUN/promotions/`); here is its index, for the gateway and the replicas.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from leyden_contracts import Promotion
from leyden_ledger.errors import Outpaced, RunNotFound
from leyden_ledger.store import SERVED, Scripts, key


@dataclass(frozen=True, slots=True)
class Promoted:
    """The versions of a run that one may ask for by name."""

    best: int | None
    """The promoted version; None before the first promotion."""
    latest: int
    """The newest version that some replica has proved; 0 is the base model."""


class Promotions:
    """What was promoted, and what is."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.redis

    async def current(self, run: str) -> Promoted:
        """Return the versions to use now, in one round trip. Raises RunNotFound."""
        best, latest = await self._redis.hmget(key(run, "run"), "best", "ready")
        if latest is None:
            raise RunNotFound(f"there is no run {run!r}")
        return Promoted(None if best is None else int(best), int(latest))

    async def record(self, promotion: Promotion) -> bool:
        """Put a stored promotion in force; False if it was known. Raises Outpaced if it is not the next one."""
        run, before = promotion.run, promotion.predecessor
        args = (promotion.number, promotion.version, "" if before is None else before, promotion.model_dump_json())
        done = await self._scripts.run("promote", run, args)
        # After the run's own keys, which may live on another node; repeating the promotion repairs a crash in between.
        await self._redis.sadd(SERVED, run)
        if done < 0:
            raise Outpaced
        return bool(done)

    async def history(self, run: str) -> list[Promotion]:
        """Return all promotions, oldest first."""
        return [Promotion.model_validate_json(text) for text in await self._redis.lrange(key(run, "promotions"), 0, -1)]

    async def proved(self, run: str, versions: Iterable[int]) -> set[int]:
        """Return those of `versions` that some replica has proved, now or earlier; the base model always."""
        asked = list(versions)
        found = await self._redis.smismember(key(run, "proved"), asked) if asked else []
        return {version for version, known in zip(asked, found, strict=True) if known or version == 0}
