"""Group commit: spans of many senders become one segment a run. A sender waits until its own are durable and noted."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from redis.exceptions import RedisError

from leyden_collector import metrics
from leyden_collector.admission import Share
from leyden_collector.cache import Segment, SegmentCache, index
from leyden_collector.quarantine import Quarantine
from leyden_collector.refusal import RefusedSpan
from leyden_collector.settings import CollectorSettings
from leyden_contracts import Transition
from leyden_ledger import AgentNote, LedgerError, SpanNote
from leyden_runtime.failpoints import failpoint
from leyden_storage import ObjectStore, StoreError
from leyden_storage.keys import segment_key

log = structlog.get_logger()


Fenced = Set[tuple[str, int]]
"""Episodes and attempts."""


class NotDurable(Exception):
    """The spans may not be stored; their sender must send them again."""


class Notes(Protocol):
    """What the writer needs of the ledger."""

    async def note_spans(self, run: str, notes: Sequence[SpanNote]) -> Fenced:
        """Record where calls' spans are; return the attempts among them that are not the live ones any more."""

    async def note_agents(self, run: str, notes: Sequence[AgentNote]) -> Fenced:
        """Record where agents' own spans are; return the attempts among them whose trajectories are without these."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment is written, and how long that may take."""

    flush_s: float
    max_bytes: int
    writers: int
    timeout_s: float
    quarantine_bytes: int = 16 * 2**20
    """For one run in a minute."""

    @classmethod
    def of(cls, settings: CollectorSettings) -> "Limits":
        """Return what `settings` say."""
        return cls(
            flush_s=settings.flush_ms / 1000,
            max_bytes=settings.max_segment_bytes,
            writers=settings.writers,
            timeout_s=settings.store_timeout_s,
            quarantine_bytes=settings.quarantine_run_bytes,
        )


@dataclass(slots=True)
class _Batch:
    run: str | None
    done: asyncio.Future[Fenced]
    full: asyncio.Event = field(default_factory=asyncio.Event)
    otlp: list[bytes] = field(default_factory=list)
    calls: list[Transition] = field(default_factory=list)
    agents: set[tuple[str, int]] = field(default_factory=set)
    refused: list[RefusedSpan] = field(default_factory=list)
    size: int = 0
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add(self, share: Share) -> None:
        if share.otlp:
            self.otlp.append(share.otlp)
        self.calls += share.calls
        self.agents |= share.agents
        self.refused += share.refused
        self.size += share.size


class SegmentWriter:
    """Gathers shares by run for `flush_s`, writes each run's as one object, and notes its calls in the ledger."""

    def __init__(
        self,
        store: ObjectStore,
        notes: Notes,
        cache: SegmentCache,
        limits: Limits,
        noted: Callable[[str], None] = lambda run: None,
    ) -> None:
        self._store = store
        self._notes = notes
        self._cache = cache
        self._limits = limits
        self._noted = noted
        self._open: dict[str | None, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(limits.writers)
        self._quarantine = Quarantine(store, limits.quarantine_bytes)
        self._pool = ThreadPoolExecutor(limits.writers, "segments")

    async def submit(self, share: Share) -> Fenced:
        """Return once the share is durable and noted; which attempts' spans were too late. Raises NotDurable."""
        batch = self._open.get(share.run)
        if batch is None:
            batch = self._open[share.run] = _Batch(share.run, asyncio.get_running_loop().create_future())
            task = asyncio.create_task(self._commit(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        batch.add(share)
        if batch.size >= self._limits.max_bytes:
            self._seal(batch)
        # Shielded: a sender that goes away must not cancel the others' write.
        return await asyncio.shield(batch.done)

    async def aclose(self) -> None:
        """Wait for what is being written."""
        await asyncio.gather(*self._tasks)
        self._pool.shutdown(wait=False)

    def _seal(self, batch: _Batch) -> None:
        batch.full.set()
        if self._open.get(batch.run) is batch:
            del self._open[batch.run]

    async def _commit(self, batch: _Batch) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(batch.full.wait(), self._limits.flush_s)
        try:
            with metrics.WRITE_SECONDS.time():
                async with asyncio.timeout(self._limits.timeout_s):
                    fenced = await self._make_durable(batch)
        except (TimeoutError, StoreError, RedisError, LedgerError, OSError) as error:
            metrics.WRITE_FAILURES.inc()
            log.warning("spans_not_durable", run=batch.run, error=repr(error), bytes=batch.size)
            _fail(batch, NotDurable("the spans could not be stored now; send them again"))
        except BaseException:
            _fail(batch, NotDurable("the collector is stopping"))
            raise
        else:
            batch.done.set_result(fenced)
        finally:
            self._seal(batch)

    async def _make_durable(self, batch: _Batch) -> Fenced:
        # While all writers are busy the batch stays open, so a slow store gets fewer and larger segments.
        await self._slots.acquire()
        self._seal(batch)
        await self._in_thread(lambda: self._write(batch))
        failpoint("collector.stored")
        if batch.run is None or not (batch.calls or batch.agents):
            return frozenset()
        fenced = await self._note(batch.run, batch, segment_key(batch.run, batch.name))
        failpoint("collector.noted")
        self._noted(batch.run)
        return fenced

    async def _note(self, run: str, batch: _Batch, segment: str) -> Fenced:
        self._keep(batch, segment)
        if batch.agents:
            # Before the calls: with the last of them an attempt is complete, and its trajectory is made.
            agents = [AgentNote(*attempt, segment) for attempt in sorted(batch.agents)]
            metrics.LATE_AGENTS.inc(len(await self._notes.note_agents(run, agents)))
        notes = [SpanNote(call.episode, call.attempt, call.number, segment) for call in batch.calls]
        fenced = await self._notes.note_spans(run, notes)
        if fenced:
            refused = [_fenced(call, segment) for call in batch.calls if (call.episode, call.attempt) in fenced]
            await self._slots.acquire()
            await self._in_thread(lambda: self._quarantine.write(run, f"{batch.name}-fenced", refused))
        return fenced

    def _keep(self, batch: _Batch, segment: str) -> None:
        size = sum(map(len, batch.otlp))
        raw = b"".join(batch.otlp) if batch.agents else b""
        self._cache.put(segment, Segment(index(batch.calls), raw), size + len(raw))

    async def _in_thread(self, write: Callable[[], None]) -> None:
        """Run `write` in the pool. Its slot is free when the thread is, which may be long after a timeout."""
        loop = asyncio.get_running_loop()

        def release(_: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for a slot
                loop.call_soon_threadsafe(self._slots.release)

        future = self._pool.submit(write)
        future.add_done_callback(release)
        await asyncio.wrap_future(future)

    def _write(self, batch: _Batch) -> None:
        if batch.refused:
            self._quarantine.write(batch.run, batch.name, batch.refused)
        if batch.run is None or not batch.otlp:
            return
        # Concatenated serialized messages are one message with all their repeated fields.
        segment = b"".join(batch.otlp)
        self._create(segment_key(batch.run, batch.name), segment)
        metrics.SEGMENTS.inc()
        metrics.SEGMENT_BYTES.inc(len(segment))

    def _create(self, key: str, data: bytes) -> None:
        if not self._store.create(key, data):
            raise StoreError(f"{key} is taken, though its name is random")


def _fenced(call: Transition, segment: str) -> RefusedSpan:
    detail = (
        f"attempt {call.attempt} of {call.episode} is not the live one any more; call {call.number} is in {segment}"
    )
    return RefusedSpan("fenced", detail, b"", 0)


def _fail(batch: _Batch, error: NotDurable) -> None:
    batch.done.set_exception(error)
    # A sender may be gone; without this, asyncio would report an error that nobody fetched.
    batch.done.exception()
