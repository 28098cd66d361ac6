"""Evaluations on held-out tasks: which runs have such tasks, what is due, and what was found.

The object store has the record (`runs/RUN/evaluations/`); here is its index. A run is watched from the upload of its
held-out tasks until it has ended and nothing is left to evaluate.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leyden_contracts import Evaluation
from leyden_ledger.errors import RunNotFound
from leyden_ledger.runs import RunState
from leyden_ledger.store import Scripts, key

_WATCHED = "leyden:evaluated"
_FIELDS = ("state", "published", "ready", "best", "held_out")


@dataclass(frozen=True, slots=True)
class Progress:
    """What is evaluated, and what there is to evaluate."""

    state: RunState
    published: int
    ready: int
    promoted: int | None
    held_out: bool
    begun: frozenset[int]
    """Versions whose evaluation is under way."""
    results: dict[int, Evaluation]
    """Version -> what was found."""


class Evaluations:
    """What the task API's evaluator asks of and tells the ledger."""

    def __init__(self, scripts: Scripts) -> None:
        self._redis = scripts.redis

    async def hold_out(self, run: str) -> None:
        """Say that the run's held-out tasks are stored. Safe to repeat."""
        await self._redis.hset(key(run, "run"), "held_out", 1)
        await self.watch(run)

    async def watched(self) -> Sequence[str]:
        """Return the runs that may have versions to evaluate, in alphabetical order."""
        return sorted(await self._redis.smembers(_WATCHED))

    async def watch(self, run: str) -> None:
        """Enter `run` among the watched ones."""
        await self._redis.sadd(_WATCHED, run)

    async def leave(self, run: str) -> None:
        """Take `run` off the watched ones: nothing is left to evaluate."""
        await self._redis.srem(_WATCHED, run)

    async def progress(self, run: str) -> Progress:
        """Return what is evaluated, and what there is to evaluate. Raises RunNotFound."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.hmget(key(run, "run"), *_FIELDS)
        pipe.hgetall(key(run, "evaluations"))
        (state, published, ready, best, held_out), known = await pipe.execute()
        if state is None:
            raise RunNotFound(f"there is no run {run!r}")
        return Progress(
            RunState(state),
            int(published),
            int(ready),
            None if best is None else int(best),
            held_out is not None,
            frozenset(int(version) for version, text in known.items() if not text),
            {int(version): Evaluation.model_validate_json(text) for version, text in sorted(known.items()) if text},
        )

    async def begin(self, run: str, version: int) -> None:
        """Say that the evaluation of `version` has been uploaded. Safe to repeat."""
        await self._redis.hsetnx(key(run, "evaluations"), version, "")

    async def groups_left(self, run: str, version: int) -> int:
        """Return how many evaluation groups of `version`, whoever asked for them, have not ended."""
        return max(int(await self._redis.hget(key(run, "eval_versions"), version) or 0), 0)

    async def record(self, evaluation: Evaluation) -> None:
        """Enter a stored result. Safe to repeat."""
        name = key(evaluation.run, "evaluations")
        await self._redis.hset(name, evaluation.version, evaluation.model_dump_json())

    async def ask_for(self, run: str, versions: Collection[int]) -> None:
        """Let replicas load, prove and keep these versions, and no others for this reason: those to evaluate."""
        name = key(run, "due_evaluations")
        asked = {int(version) for version in await self._redis.smembers(name)}
        if new := set(versions) - asked:
            await self._redis.sadd(name, *new)
        if old := asked - set(versions):
            await self._redis.srem(name, *old)
