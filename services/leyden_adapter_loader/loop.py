"""The adapter_loader's main loop.

Every `poll_s` and whenever a version is published, as long as the process lives:

    replica    what is really loaded                                replica.Replica
    ledger     which versions the runs want                         wishes.Wishes
    new ones   manifest, files, sha256, load, proof (in tasks)      bring_up.BringUp, cache.Cache, proof.judge
    ledger     what is ready and what is withheld, as a heartbeat   Loop._tell
    replica    unload what nobody wants; later delete its files     Loop._retire

`shelf.Shelf` remembers what was proved. Nothing but the files outlives this process: a loader that starts beside a
running replica proves again what it finds there. A replica that is away is taken off the ledger's list at once, and
what it had proved is forgotten, for what comes back may be another process.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError

from leyden_adapter_loader import metrics
from leyden_adapter_loader.bring_up import BringUp, Rejected
from leyden_adapter_loader.cache import Cache
from leyden_adapter_loader.names import Adapter, whole
from leyden_adapter_loader.replica import Replica, ReplicaDown, ReplicaRefused
from leyden_adapter_loader.settings import AdapterLoaderSettings
from leyden_adapter_loader.shelf import Pauses, Shelf
from leyden_adapter_loader.wishes import Wishes
from leyden_ledger import Ledger, LedgerError, ReplicaStatus
from leyden_storage import ObjectStore

log = structlog.get_logger()
_AT_ONCE = 4
"""Versions being brought into service at the same time."""
_CLEAN_S = 1.0
"""How often files that nobody needs are looked for."""
_LISTEN_S = 2.0
"""How long one question for news from the ledger stays open."""


@dataclass(slots=True)
class _Said:
    status: ReplicaStatus
    at: float


class Loop:
    """Keeps one replica in step with what the runs want of it."""

    def __init__(
        self, settings: AdapterLoaderSettings, ledger: Ledger, store: ObjectStore, replica: Replica, cache: Cache
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._replica = replica
        self._cache = cache
        self._bring_up = BringUp(store, cache, replica, settings.probe_tolerance)
        self._wishes = Wishes(ledger, settings.base_model, settings.runs_s)
        pauses = Pauses(settings.retire_grace_s, settings.files_grace_s, settings.retry_s, settings.retry_most_s)
        self._shelf = Shelf(pauses)
        self._adapters: dict[str, Adapter] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._woken = asyncio.Event()
        self._said: _Said | None = None
        self._trouble: str | None = None
        self._cleaned_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then take the replica off the list, for nobody watches it any more."""
        listening = asyncio.create_task(self._listen())
        try:
            while not stop.is_set():
                await self._round()
                await self._pause(stop)
        finally:
            tasks = [listening, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(RedisError, OSError):
                await self._leave()

    async def _listen(self) -> None:
        """Let a round begin as soon as a version is published."""
        mark = "0"
        while True:
            try:
                newest = await self._ledger.replicas.published(mark, _LISTEN_S)
            except (RedisError, OSError):
                # The rounds tell of it; and they find every version without this.
                await asyncio.sleep(_LISTEN_S)
                continue
            if newest != mark:
                mark = newest
                self._woken.set()

    async def _round(self) -> None:
        try:
            await self._step()
        except (RedisError, LedgerError, OSError) as error:
            metrics.ROUND_FAILURES.inc()
            log.warning("round_failed", error=f"{type(error).__name__}: {error}")
        except Exception:  # whatever it is, the next round must come: nobody else looks after this replica
            metrics.ROUND_FAILURES.inc()
            log.exception("round_failed")

    async def _step(self) -> None:
        busy = set(self._tasks)
        models = await self._look()
        if models is None:
            await self._leave()
            return
        wanted = {adapter.name: adapter for adapter in await self._wishes.read()}
        # What a task has just brought up or thrown out is newer than the replica's list.
        busy |= self._tasks.keys()
        listed = {name for name in models if Adapter.parse(name)} - busy
        self._shelf.see(listed | (self._shelf.proved & busy), wanted, time.monotonic())
        self._adapters = wanted
        self._start_work()
        await self._tell()
        await self._retire()
        await self._clean()

    async def _look(self) -> set[str] | None:
        """Return what the replica serves; None if it is of no use now."""
        try:
            models = await self._replica.models()
            trouble = None
            if self._settings.base_model not in models:
                trouble = f"it serves {', '.join(sorted(models))}, not {self._settings.base_model!r}"
        except (ReplicaDown, ReplicaRefused) as error:
            trouble = str(error)
        if trouble != self._trouble:
            event = log.warning if trouble else log.info
            event("replica_unusable" if trouble else "replica_usable", url=self._settings.replica_url, reason=trouble)
        self._trouble = trouble
        metrics.REPLICA_UP.set(trouble is None)
        return models if trouble is None else None

    async def _leave(self) -> None:
        """Take the replica off the list. Without the ledger its word runs out by itself."""
        self._shelf.lost()
        if self._said:
            await self._ledger.replicas.leave(self._settings.replica_id)
            self._said = None

    def _start_work(self) -> None:
        for name in self._shelf.due(time.monotonic()):
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._serve(self._adapters[name]))

    async def _serve(self, adapter: Adapter) -> None:
        """Bring one version into service, or withhold it and say why."""
        name = adapter.name
        bound = log.bind(run=adapter.run, version=adapter.version, adapter=name)
        try:
            async with self._slots:
                life = self._shelf.life
                again = name in self._shelf.rejected
                verdict = await self._bring_up(adapter, name in self._shelf.loaded, again)
        except ReplicaDown as error:
            metrics.ATTEMPTS.labels("replica_down").inc()
            bound.warning("version_postponed", reason=str(error))
        except Rejected as rejected:
            metrics.ATTEMPTS.labels(rejected.outcome).inc()
            pause = self._shelf.withhold(name, life, rejected.reason, time.monotonic())
            bound.error("version_withheld", outcome=rejected.outcome, reason=rejected.reason, again_in_s=pause)
        except Exception as error:
            metrics.ATTEMPTS.labels("error").inc()
            self._shelf.withhold(name, life, f"{type(error).__name__}: {error}", time.monotonic())
            bound.exception("version_failed")
        else:
            self._note_proof(name, life, bound, verdict.reason, verdict.unseen)
        finally:
            del self._tasks[name]
            self._woken.set()

    def _note_proof(
        self, name: str, life: int, bound: structlog.BoundLogger, reason: str, unseen: tuple[str, ...]
    ) -> None:
        metrics.ATTEMPTS.labels("ready").inc()
        for policy in unseen:
            metrics.UNSEEN.labels(policy).inc()
        seconds = self._shelf.prove(name, life, time.monotonic())
        if seconds is not None:
            metrics.SECONDS.observe(seconds)
            bound.info("version_proved", proof=reason, seconds=round(seconds, 3), unseen=unseen)

    async def _tell(self) -> None:
        """Say in the ledger what is ready and what is withheld: at once if that has changed, else now and then."""
        ready, rejected = self._shelf.ready, self._shelf.rejected
        metrics.READY.set(len(ready))
        metrics.REJECTED.set(len(rejected))
        settings = self._settings
        status = ReplicaStatus(
            id=settings.replica_id,
            url=settings.replica_url.rstrip("/"),
            base_model=settings.base_model,
            ready=sorted(ready),
            rejected=rejected,
        )
        now = time.monotonic()
        if self._said and self._said.status == status and now - self._said.at < settings.beat_ttl_s / 4:
            return
        await self._ledger.replicas.beat(status, settings.beat_ttl_s)
        # After the beat: groups that start now find a replica. With every beat: a ledger that was rebuilt forgot it.
        for run, version in whole(self._adapters.values(), ready):
            await self._ledger.replicas.mark_ready(run, version)
        self._said = _Said(status, now)

    async def _retire(self) -> None:
        for name in self._shelf.to_unload(time.monotonic()):
            try:
                await self._replica.unload(name)
            except (ReplicaDown, ReplicaRefused) as error:
                self._shelf.keep(name, time.monotonic())
                log.warning("unload_failed", adapter=name, reason=str(error))
                continue
            self._shelf.unloaded(name)
            metrics.RETIRED.inc()
            log.info("version_retired", adapter=name)

    async def _clean(self) -> None:
        now = time.monotonic()
        if now - self._cleaned_at < _CLEAN_S:
            return
        self._cleaned_at = now
        on_disk = await asyncio.to_thread(self._cache.names)
        for name in self._shelf.to_delete(on_disk - self._tasks.keys(), now):
            await asyncio.to_thread(self._cache.delete, name)
            log.info("files_deleted", adapter=name)

    async def _pause(self, stop: asyncio.Event) -> None:
        """Wait for the next round; less if a version has just been published, proved or withheld."""
        waiting = [asyncio.create_task(event.wait()) for event in (stop, self._woken)]
        await asyncio.wait(waiting, timeout=self._settings.poll_s, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        self._woken.clear()
