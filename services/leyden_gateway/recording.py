"""The record of a call: counted in the ledger when it is about to leave, then handed over as a span."""

import asyncio
import time
from collections.abc import Coroutine

from leyden_contracts import Transition
from leyden_gateway.callers import Attempt
from leyden_gateway.exporter import Place
from leyden_gateway.permits import Permits
from leyden_gateway.plan import Plan
from leyden_gateway.reply import Reply
from leyden_ledger import Ledger, LedgerError
from leyden_runtime.failpoints import failpoint
from leyden_traces import encode_call, span_id, trace_id


class Recorder:
    """Counts and records calls."""

    def __init__(self, ledger: Ledger, permits: Permits) -> None:
        self._ledger = ledger
        self._permits = permits
        self._commits: set[asyncio.Task[None]] = set()

    def call(self, attempt: Attempt, plan: Plan, start_ns: int, parent: bytes, place: Place) -> "Record":
        """Return the record of a call that came at `start_ns`, to be counted and closed."""
        return Record(self._ledger, self._permits, attempt, plan, start_ns, parent, place)

    async def unparted(self, work: Coroutine[None, None, None]) -> None:
        """Do `work` to its end, even if the agent leaves meanwhile: a count must not be parted from its span."""
        task = asyncio.create_task(work)
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        await asyncio.shield(task)


class Record:
    """One reply of an attempt."""

    def __init__(
        self, ledger: Ledger, permits: Permits, attempt: Attempt, plan: Plan, start_ns: int, parent: bytes, place: Place
    ) -> None:
        self._ledger = ledger
        self._permits = permits
        self._attempt = attempt
        self._plan = plan
        self._start_ns = start_ns
        self._parent = parent
        self._place = place
        self._first = 0

    async def count(self, samples: int = 1) -> None:
        """Count the reply, which is about to leave: each of its samples is a call. Raises Fenced, TooManyCalls."""
        failpoint("gateway.replied")
        a = self._attempt
        try:
            self._first = await self._ledger.calls.count(a.run, a.episode, a.number, samples)
        except LedgerError:
            self._permits.drop(a)
            raise
        failpoint("gateway.counted")

    def close(self, replica: str, reply: Reply, sample: int = 0) -> None:
        """Hand over the span of a sample that has been counted."""
        a, number = self._attempt, self._first + sample
        transition = Transition(
            run=a.run,
            episode=a.episode,
            attempt=a.number,
            number=number,
            role=self._plan.role,
            policy_version=self._plan.version,
            prompt_token_ids=reply.prompt_ids,
            response_token_ids=reply.response_ids,
            response_logprobs=reply.logprobs,
            temperature=self._plan.temperature,
            finish_reason=reply.finish_reason,
            response_id=reply.id,
            replica=replica,
        )
        trace, span = trace_id(a.run, a.episode, a.number), span_id(a.run, a.episode, a.number, number)
        self._place.put(encode_call(transition, self._start_ns, time.time_ns(), trace, span, self._parent))


class Unrecorded:
    """A user's call: it belongs to no episode."""

    async def count(self, samples: int = 1) -> None:
        """Count nothing."""

    def close(self, replica: str, reply: Reply, sample: int = 0) -> None:
        """Record nothing."""
