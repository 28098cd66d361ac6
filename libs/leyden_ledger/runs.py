"""Runs: created once, sealed when no more tasks come, finished when the learner has consumed the last group."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from leyden_contracts import TERMINAL_STATES, RunSpec
from leyden_ledger.errors import RunNotFound
from leyden_ledger.store import ACTIVE, KEEPING, RESTING, Scripts, key

_RUNS = "leyden:runs"
PURPOSES = ("train", "eval")


class RunState(StrEnum):
    """Where a run stands."""

    OPEN = "open"
    """Takes tasks."""
    SEALED = "sealed"
    """Takes no more training tasks; the learner uses the last, possibly smaller, batch."""
    FINISHED = "finished"
    """Every training group is consumed. Evaluations are still welcome."""
    CANCELLED = "cancelled"
    """Ended by a person: nothing starts any more, and nothing is trained on."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run's counters; reading them scans nothing."""

    state: RunState
    counts: dict[str, int]
    """`purpose:state` (`train:queued`) -> episodes."""
    failures: dict[str, int]
    """Reason -> failed attempts."""
    rewards: dict[str, tuple[float, int]]
    """`train`, or `eval:VERSION` -> (sum of rewards, episodes)."""
    groups_accepted: int
    groups_released: int
    groups_finished: int
    groups_consumed: int
    version_published: int
    version_ready: int
    groups_asked: int = 0
    """Beyond `groups_per_step` for each step: what dynamic sampling asked for."""
    held: str | None = None
    """Why no episode starts at the moment: `paused` or `recovering`."""
    held_out: bool = False
    """Whether there are held-out tasks to evaluate versions on."""
    promoted: int | None = None
    """The promoted version; None before the first promotion."""
    pending: int = 0
    """Episodes of the queued ones that are in the object store, and not yet in Redis."""
    episodes_accepted: int = 0
    never_entered: dict[str, int] = field(default_factory=dict)
    """Purpose -> cancelled episodes that were never in Redis."""

    @property
    def unfinished(self) -> int:
        """Episodes that have not ended."""
        return sum(count for name, count in self.counts.items() if name.partition(":")[2] not in TERMINAL_STATES)

    @property
    def idle(self) -> bool:
        """Whether nothing will happen unless somebody asks for it."""
        return self.state in (RunState.FINISHED, RunState.CANCELLED) and not self.unfinished


class Runs:
    """The runs of this deployment."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.redis

    async def create(self, spec: RunSpec, first_attempt: int = 0) -> bool:
        """Enter a run; False if it is there already.

        With a `first_attempt` the run is being rebuilt: it is held, and its attempts count on from that number.
        """
        if spec.id is None:
            raise ValueError("a run needs its id before it is entered")
        bound, rules = spec.algorithm, spec.episodes
        limits = (rules.max_attempts, rules.max_calls, rules.max_running or "")
        mastery = bound.selection.success_reward if bound.selection.mastered_last else ""
        pace = (bound.groups_per_step, bound.max_staleness)
        args = (spec.model_dump_json(), *pace, *limits, first_attempt, mastery, spec.first_version)
        made = await self._scripts.run("create_run", spec.id, args)
        # After the run's own keys, which may live on another node; a retry repairs a crash between the two.
        for index in (_RUNS, _tenants(spec.tenant)):
            await self._redis.sadd(index, spec.id)
        await self._scripts.activate(spec.id)
        return bool(made)

    async def get(self, run: str) -> RunSpec:
        """Return the run's specification. Raises RunNotFound."""
        text = await self._redis.hget(key(run, "run"), "spec")
        if text is None:
            raise RunNotFound(f"there is no run {run!r}")
        return RunSpec.model_validate_json(text)

    async def list(self, tenant: str | None = None) -> list[str]:
        """Return the ids of all runs, or of a tenant's, in alphabetical order."""
        return sorted(await self._redis.smembers(_tenants(tenant) if tenant else _RUNS))

    async def active(self) -> Sequence[str]:
        """Return the runs that may have work, in alphabetical order."""
        return sorted(await self._redis.smembers(ACTIVE))

    async def activate(self, run: str) -> None:
        """Enter `run` among the active ones."""
        await self._scripts.activate(run)

    async def rest(self, run: str) -> bool:
        """Take `run` off the active ones if it is idle; say whether it is."""
        if not (await self.summary(run)).idle:
            return False
        await self._redis.srem(ACTIVE, run)
        # An upload that came in between has entered its run before this looks again, or enters it after.
        if not (await self.summary(run)).idle:
            await self._scripts.activate(run)
            return False
        await self._redis.zadd(RESTING, {run: (await self._redis.time())[0]})
        return True

    async def resting(self, for_s: float) -> Sequence[str]:
        """Return the runs that have had no work for `for_s` seconds and are not archived, longest first."""
        return await self._redis.zrangebyscore(RESTING, "-inf", (await self._redis.time())[0] - for_s)

    async def archived(self, run: str) -> None:
        """Say that nothing of the run is left to archive; its stored data is to be cared for from now on."""
        since = await self._redis.zscore(RESTING, run)
        if since is not None:
            await self._redis.zadd(KEEPING, {run: since})
        await self._redis.zrem(RESTING, run)

    async def seal(self, run: str) -> bool:
        """Take no more training tasks; False if it was sealed before. Raises RunNotFound."""
        await self.get(run)
        return bool(await self._scripts.run("set_run_state", run, (RunState.SEALED, RunState.OPEN)))

    async def finish(self, run: str) -> bool:
        """Mark a sealed run as finished; False if it was not sealed."""
        return bool(await self._scripts.run("set_run_state", run, (RunState.FINISHED, RunState.SEALED)))

    async def cancel(self, run: str) -> bool:
        """End the run for good; False if it was cancelled before. Its episodes are ended by `episodes.expire`.

        Raises RunNotFound.
        """
        await self.get(run)
        await self._scripts.activate(run)
        return bool(await self._scripts.run("cancel_run", run))

    async def hold(self, run: str, why: str | None) -> None:
        """Let no episode start any more (`paused`, `recovering`), or with None let them start again.

        Raises RunNotFound.
        """
        await self.get(run)
        await self._scripts.run("hold", run, (why or "",))

    async def summary(self, run: str) -> RunSummary:
        """Return the run's counters. Raises RunNotFound."""
        pipe = self._redis.pipeline(transaction=False)
        for name in ("run", "counts", "failures", "rewards"):
            pipe.hgetall(key(run, name))
        head, counts, failures, rewards = await pipe.execute()
        if not head:
            raise RunNotFound(f"there is no run {run!r}")
        series = {name.removesuffix(":sum") for name in rewards if name.endswith(":sum")}
        return RunSummary(
            state=RunState(head["state"]),
            counts={name: int(count) for name, count in counts.items()},
            failures={name: int(count) for name, count in failures.items()},
            rewards={name: (float(rewards[f"{name}:sum"]), int(rewards[f"{name}:count"])) for name in series},
            groups_accepted=int(head["groups_accepted"]),
            groups_released=int(head["groups_released"]),
            groups_finished=int(head["groups_finished"]),
            groups_consumed=int(head["groups_consumed"]),
            version_published=int(head["published"]),
            version_ready=int(head["ready"]),
            groups_asked=int(head.get("groups_asked", 0)),
            held=head.get("held"),
            held_out="held_out" in head,
            promoted=int(head["best"]) if "best" in head else None,
            episodes_accepted=int(head["episodes_accepted"]),
            never_entered=_by_purpose(head, "never_entered"),
            pending=sum(_by_purpose(head, "pending").values()),
        )


def _by_purpose(head: dict[str, str], name: str) -> dict[str, int]:
    return {purpose: int(head[f"{name}:{purpose}"]) for purpose in PURPOSES if f"{name}:{purpose}" in head}


def _tenants(tenant: str) -> str:
    return f"leyden:tenant:{tenant}:runs"
