"""Supervises attempts: claim, run, grade, close. Nothing here blocks, so that waiting attempts cost next to nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis import RedisError
from structlog.contextvars import bound_contextvars

from leyden_contracts import AttemptResult, FailureReason, RunSpec
from leyden_ledger import Claim, Ledger, LedgerError
from leyden_runtime.failpoints import failpoint
from leyden_worker import metrics
from leyden_worker.environment import Environments
from leyden_worker.outcome import AttemptFailed, agent_output, graded
from leyden_worker.parent_link import End, ImportFailed
from leyden_worker.settings import WorkerSettings
from leyden_worker.tasks import RunReader, TaskReader
from leyden_worker.warm_pool import WarmPool

log = structlog.get_logger()
_RETRY_S = 0.2
_LONGEST_RETRY_S = 2.0


@dataclass
class Supervisor:
    """Runs the attempts of one worker."""

    name: str
    settings: WorkerSettings
    ledger: Ledger
    runs: RunReader
    tasks: TaskReader
    pool: WarmPool
    environments: Environments
    _all: set["asyncio.Task[Any]"] = field(default_factory=set)
    _holding: set["asyncio.Task[Any]"] = field(default_factory=set)
    _stopping: bool = False

    async def supervise(self, run: str, episode: str) -> None:
        """See one attempt at `episode` through, if it is to be had: somebody rang for it."""
        task = asyncio.current_task()
        if self._stopping or task is None:
            return
        self._all.add(task)
        try:
            claim = await self._claim(run, episode)
            if claim is not None:
                with bound_contextvars(run=run, episode=episode, attempt=claim.attempt):
                    await self._hold(claim, task)
        finally:
            self._all.discard(task)

    async def stop(self) -> None:
        """Kill all agents and give their episodes back."""
        self._stopping = True
        # Not those that wait for a claim's answer: they may own an episode without knowing it yet.
        for task in list(self._holding):
            task.cancel()
        await asyncio.gather(*self._all, return_exceptions=True)

    async def _claim(self, run: str, episode: str) -> Claim | None:
        try:
            claim = await self.ledger.episodes.claim(run, episode, self.name, self.settings.lease_s)
        except (RedisError, LedgerError) as error:
            # Nothing is lost: the dispatcher rings again.
            log.warning("claim_failed", run=run, episode=episode, error=str(error))
            return None
        metrics.RINGS_IN_VAIN.inc(claim is None)
        return claim

    async def _hold(self, claim: Claim, holder: "asyncio.Task[Any]") -> None:
        if self._stopping:
            await self._give_back(claim)
            return
        self._holding.add(holder)
        try:
            failpoint("worker.claimed")
            with metrics.RUNNING.track_inprogress():
                await self._see_through(claim)
        finally:
            self._holding.discard(holder)

    async def _see_through(self, claim: Claim) -> None:
        """Keep the lease while the attempt runs, then close it; whichever ends first ends the other."""
        started = time.monotonic()
        attempt = asyncio.create_task(self._attempt(claim))
        lease = asyncio.create_task(self._keep_lease(claim))
        try:
            await asyncio.wait({attempt, lease}, return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                await self._close(claim, attempt.result(), started)
            else:
                log.warning("attempt_lost", why="it was cancelled, or another worker has the episode")
                metrics.ATTEMPTS.labels("fenced", "").inc()
        except asyncio.CancelledError:
            await _ended(attempt)
            await self._give_back(claim)
            raise
        finally:
            await _ended(attempt)
            await _ended(lease)

    async def _keep_lease(self, claim: Claim) -> None:
        """Return when the attempt is no longer the live one."""
        while True:
            await asyncio.sleep(self.settings.lease_s / 3)
            try:
                alive = await self.ledger.episodes.heartbeat(
                    claim.run, claim.episode, claim.attempt, self.settings.lease_s
                )
            except RedisError as error:
                # The fence holds without us: should the lease run out meanwhile, the next heartbeat says so.
                log.warning("heartbeat_failed", error=str(error))
                continue
            if not alive:
                return

    async def _attempt(self, claim: Claim) -> AttemptResult:
        try:
            return await self._run(claim)
        except AttemptFailed as failure:
            return failure.result
        except Exception as error:  # whatever it is, it is not the agent's doing, and the attempt must be closed
            log.exception("attempt_broke")
            message = f"{type(error).__name__}: {error}"
            return AttemptFailed(FailureReason.INFRASTRUCTURE, message).result

    async def _run(self, claim: Claim) -> AttemptResult:
        spec = await self.runs.read(claim.run)
        task = await self.tasks.read(claim.run, claim.task_ref)
        failpoint("worker.starting")
        output = await self._run_agent(claim, spec, task["input"])
        failpoint("worker.agent_ended")
        return await self._run_grader(claim, spec, task, output)

    async def _run_agent(self, claim: Claim, spec: RunSpec, value: Any) -> Any:
        timeout_s = spec.episodes.timeout_s
        memory = self.settings.agent_memory_mb
        end = await self._call(
            ("agent", spec.agent, FailureReason.AGENT_ERROR),
            claim.run,
            [value],
            timeout_s,
            env=self.environments.attempt(claim, spec),
            memory_bytes=memory * 2**20 if memory else None,
            max_report_bytes=self.settings.max_output_bytes,
        )
        return agent_output(end, timeout_s)

    async def _run_grader(self, claim: Claim, spec: RunSpec, task: dict[str, Any], output: Any) -> AttemptResult:
        timeout_s = self.settings.grader_timeout_s
        what = ("grader", spec.grader, FailureReason.GRADER_ERROR)
        end = await self._call(what, claim.run, [task, output], timeout_s)
        return graded(end, timeout_s, output)

    async def _call(
        self, what: tuple[str, str, FailureReason], run: str, arguments: list[Any], timeout_s: float, **more: Any
    ) -> End:
        kind, reference, reason = what
        try:
            async with self.pool.borrow(run, kind, reference) as parent:
                end = await parent.call(arguments, timeout_s, **more)
        except ImportFailed as error:
            raise AttemptFailed(reason, f"the run's {kind} `{reference}` cannot be used: {error}") from error
        if end.printed.strip():
            log.info(f"{kind}_printed", text=end.printed)
        return end

    async def _close(self, claim: Claim, result: AttemptResult, started: float) -> None:
        async def close() -> bool:
            return await self.ledger.episodes.close(claim.run, claim.episode, claim.attempt, result)

        failpoint("worker.closing")
        kept = await self._insist(close, "close")
        failpoint("worker.closed")
        reason = result.reason or ""
        metrics.ATTEMPTS.labels(result.outcome if kept else "fenced", reason).inc()
        metrics.ATTEMPT_SECONDS.labels(result.outcome).observe(time.monotonic() - started)
        say = log.info if result.outcome == "graded" else log.warning
        say(
            "attempt_closed",
            outcome=result.outcome,
            reward=result.reward,
            reason=reason,
            kept=kept,
            error=result.message,
        )

    async def _give_back(self, claim: Claim) -> None:
        async def give_back() -> bool:
            return await self.ledger.episodes.give_back(claim.run, claim.episode, claim.attempt)

        given = await self._insist(give_back, "give_back", give_up_s=3)
        metrics.ATTEMPTS.labels("given_back", "").inc()
        log.info("attempt_given_back", given=given)

    async def _insist(self, step: Callable[[], Awaitable[bool]], what: str, give_up_s: float | None = None) -> bool:
        """Repeat a change of the ledger while Redis is away. False: it was refused, or Redis stayed away too long."""
        end = time.monotonic() + (self.settings.close_retry_s if give_up_s is None else give_up_s)
        pause = _RETRY_S
        while True:
            try:
                return await step()
            except RedisError as error:
                log.warning("ledger_away", step=what, error=str(error))
                if time.monotonic() + pause > end:
                    return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)


async def _ended(task: "asyncio.Task[Any]") -> None:
    # Again and again: a cancellation that arrives while redis-py opens a connection can be swallowed there.
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1)
