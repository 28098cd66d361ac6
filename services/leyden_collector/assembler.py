"""The assembler: closed attempts whose spans are all stored become one batch of trajectories, once.

Any number of collectors may run this. The ledger leases batches with fixed members, the conditional create makes each
batch once, and what a killed collector held is leased again as it was. The object is there before any member is settled
or refused, also if it holds nothing: a collector that was slow and saw other spans then finds the name taken, and
goes by what is stored.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from redis.exceptions import RedisError

from leyden_collector import metrics
from leyden_collector.pace import Pace
from leyden_collector.reader import SegmentReader
from leyden_collector.rules import RunRules
from leyden_contracts import SignalRules, Trajectory, Transition, Verdict
from leyden_ledger import Batch, Closed, Ending, Ledger, LedgerError, Refusal
from leyden_runtime.failpoints import failpoint
from leyden_runtime.shutdown import sleep_unless
from leyden_storage import ObjectStore, StoreError
from leyden_storage.keys import trajectory_batch_key
from leyden_storage.trajectories import encode_batch, read_batch, write_batch
from leyden_traces import Fact, build_trajectory

log = structlog.get_logger()
_REFUSED = {
    "incomplete": "the stored spans of its calls are lost, or contradict each other",
    "conflict": "another trajectory of this episode is stored already, or its batch without it",
}
"""Outcome -> what the ledger is told. Such an attempt is never trained on."""
_READS = 8
"""Attempts whose segments are looked for at the same time."""


@dataclass(slots=True)
class _Sorted:
    """What is to become of a batch's members."""

    stored: list[tuple[str, int]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def store(self, trajectory: Trajectory, outcome: str) -> None:
        self.stored.append((trajectory.episode, trajectory.attempt))
        self.outcomes[outcome] += 1

    def refuse(self, closed: Closed, outcome: str) -> None:
        log.error("attempt_refused", run=closed.run, episode=closed.episode, attempt=closed.attempt, outcome=outcome)
        self.refused.append(Refusal(closed.episode, closed.attempt, _REFUSED[outcome]))
        self.outcomes[outcome] += 1


class Assembler:
    """Turns closed attempts into trajectories until it is stopped."""

    def __init__(
        self,
        store: ObjectStore,
        ledger: Ledger,
        reader: SegmentReader,
        pace: Pace,
        *,
        lease_s: float,
        width: int,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._reader = reader
        self._pace = pace
        self._lease_s = lease_s
        self._width = asyncio.Semaphore(width)
        self._reads = asyncio.Semaphore(_READS)
        self._rules = RunRules(ledger)

    async def run(self, stop: asyncio.Event) -> None:
        """Assemble until `stop` is set; finish the batches in hand."""
        while not stop.is_set():
            batches: list[Batch] = []
            try:
                batches = await self.once()
            except (RedisError, LedgerError, OSError) as error:
                log.warning("ledger_unreachable", error=repr(error))
            # Nobody waits for others, but what was closed during a batch comes together in the next one.
            if not any(batch.full for batch in batches):
                await sleep_unless(stop, self._pace.poll_s)

    async def once(self) -> list[Batch]:
        """Ask each run that is due to be asked for a batch, and assemble them; return them."""
        if self._pace.sweep_due():
            self._pace.swept(await self._ledger.runs.active())
        batches = [batch for run in self._pace.runs() if (batch := await self._due(run))]
        await asyncio.gather(*map(self._handle, batches))
        return batches

    async def _due(self, run: str) -> Batch | None:
        try:
            return await self._ledger.assembly.due(run, self._lease_s)
        except (RedisError, LedgerError, OSError) as error:
            # What earlier runs have leased must still be assembled.
            log.warning("ledger_unreachable", run=run, error=repr(error))
            return None

    async def _handle(self, batch: Batch) -> None:
        bound = log.bind(run=batch.run, batch=batch.name, members=len(batch.members))
        started = time.monotonic()
        async with self._width:
            try:
                outcomes = await self._assemble(batch)
            except (StoreError, RedisError, LedgerError, OSError) as error:
                outcomes = Counter({"retry": len(batch.members)})
                bound.warning("assembly_postponed", error=repr(error))
            except Exception:
                # One batch that cannot be assembled must not hold up the others.
                outcomes = Counter({"error": len(batch.members)})
                bound.exception("assembly_failed")
        for outcome, count in outcomes.items():
            metrics.TRAJECTORIES.labels(outcome=outcome).inc(count)
        metrics.ASSEMBLY_SECONDS.observe(time.monotonic() - started)

    async def _assemble(self, batch: Batch) -> Counter[str]:
        failpoint("collector.leased")
        built = [one for one in await asyncio.gather(*map(self._build, batch.members)) if one]
        created, stored = await asyncio.to_thread(self._write, batch, built)
        failpoint("collector.written")
        members = _sort(batch.members, built, stored, "written" if created else "repeated")
        ending = await self._ledger.assembly.settle(batch, members.stored, members.refused)
        if ending is Ending.SETTLED:
            return members.outcomes
        log.warning("batch_unknown_to_ledger", run=batch.run, batch=batch.name, ending=str(ending))
        if ending is Ending.LOST and created:
            # The attempts run again under the rebuilt ledger, which did not find this in the store.
            await asyncio.to_thread(self._store.delete, trajectory_batch_key(batch.run, batch.name))
        return Counter({str(ending): len(batch.members)})

    async def _build(self, closed: Closed) -> Trajectory | None:
        """Return the trajectory, or None if there can be none: its batch does without it.

        Raises StoreError, LedgerError, redis.RedisError.
        """
        rules = await self._rules.of(closed.run)
        try:
            async with self._reads:
                transitions = await self._reader.transitions(closed)
                facts = await self._reader.facts(closed)
            trajectory = await _made(closed, rules, transitions, facts)
        except StoreError:
            raise
        except Exception:
            log.exception("trajectory_failed", run=closed.run, episode=closed.episode, attempt=closed.attempt)
            return None
        return None if trajectory.verdict is Verdict.INCOMPLETE else trajectory

    def _write(self, batch: Batch, built: Sequence[Trajectory]) -> tuple[bool, Sequence[Trajectory]]:
        """Create the object; return whether that was done, and what is in it now. Raises StoreError."""
        try:
            created = write_batch(self._store, batch.run, batch.name, built)
        except (StoreError, OSError):
            raise
        except Exception:
            built = [one for one in built if _fits(one)]
            created = write_batch(self._store, batch.run, batch.name, built)
        return created, built if created else read_batch(self._store, batch.run, batch.name)


async def _made(
    closed: Closed, rules: SignalRules, transitions: Sequence[Transition], facts: Sequence[Fact]
) -> Trajectory:
    def make(facts: Sequence[Fact]) -> Trajectory:
        return build_trajectory(
            run=closed.run,
            group=closed.group,
            episode=closed.episode,
            task=closed.task,
            attempt=closed.attempt,
            purpose=closed.purpose,
            reward=closed.reward,
            rewards=closed.rewards,
            calls=closed.calls,
            transitions=transitions,
            output=closed.output,
            facts=facts,
            rules=rules,
            call_rewards=closed.call_rewards,
        )

    if not facts:
        return make(())
    try:
        return await asyncio.to_thread(make, facts)
    except Exception:
        # Whatever an agent may have sent, its calls are what counts.
        log.exception("agent_spans_left_out", run=closed.run, episode=closed.episode, attempt=closed.attempt)
        return make(())


def _sort(members: Sequence[Closed], built: Sequence[Trajectory], stored: Sequence[Trajectory], how: str) -> _Sorted:
    """Say of each member what to tell the ledger, by what is in the stored object."""
    ours, found, done = _by_episode(built), _by_episode(stored), _Sorted()
    for closed in members:
        mine, there = ours.get(closed.episode), found.pop(closed.episode, None)
        if there and (mine is there or _same(mine, there, closed)):
            done.store(there, how)
        else:
            done.refuse(closed, "conflict" if mine else "incomplete")
    # A ledger that lost its last second may have formed this batch before, with others: they are stored all the same.
    for trajectory in found.values():
        done.store(trajectory, how)
    return done


def _fits(trajectory: Trajectory) -> bool:
    """Whether it can be stored at all: a number may be too large for its column, and that must not hold up others."""
    try:
        encode_batch([trajectory])
    except Exception:
        log.exception("trajectory_failed", run=trajectory.run, episode=trajectory.episode, attempt=trajectory.attempt)
        return False
    return True


def _by_episode(trajectories: Sequence[Trajectory]) -> dict[str, Trajectory]:
    return {trajectory.episode: trajectory for trajectory in trajectories}


def _same(mine: Trajectory | None, there: Trajectory, closed: Closed) -> bool:
    """Whether what is stored is this attempt's. Only its calls and rewards count, not what its agent's spans say."""
    calls = _as_recorded((mine or there).transitions)
    return (there.attempt, there.reward, there.rewards, _as_recorded(there.transitions)) == (
        closed.attempt,
        closed.reward,
        closed.rewards,
        calls,
    )


def _as_recorded(calls: Sequence[Transition]) -> list[Transition]:
    return [call.model_copy(update={"agent": "", "parent": ""}) for call in calls]
