"""The process: the HTTP server and the loops, from start to a clean stop."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Coroutine, Iterator
from functools import partial

import structlog
import uvicorn
from redis import RedisError

from leyden_ledger.durability import dangers
from leyden_ledger.recovery import stored_runs
from leyden_runtime.doorbell import LONGEST_QUEUE, make_celery, ring, waiting
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings
from leyden_runtime.shutdown import stop_event
from leyden_storage import StoreError
from leyden_task_api.app import create_app
from leyden_task_api.dispatcher import Dispatcher
from leyden_task_api.evaluator import Evaluator
from leyden_task_api.keeper import Keeper
from leyden_task_api.loops import Gauges, archive, forever, reconcile
from leyden_task_api.parts import Parts, open_parts
from leyden_task_api.settings import TaskApiSettings

log = structlog.get_logger()


class _Server(uvicorn.Server):
    """A server that leaves the process's signals alone: `stop_event` has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    configure_logs("task_api")
    settings = load_settings(TaskApiSettings)
    raise SystemExit(asyncio.run(_run(settings)))


async def _run(settings: TaskApiSettings) -> int:
    try:
        parts = open_parts(settings, stop_event())
    except (StoreError, ValueError) as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    try:
        return 2 if await _unsafe(parts) else await _serve(parts)
    finally:
        await parts.ledger.aclose()


async def _unsafe(parts: Parts) -> bool:
    try:
        wrong = await dangers(parts.ledger)
        empty = not await parts.ledger.runs.list()
        lost = await asyncio.to_thread(stored_runs, parts.store) if empty else []
    except (RedisError, StoreError) as error:
        # It may be on its way up: callers get 503 until then.
        log.warning("redis_unchecked", error=str(error))
        return False
    if lost:
        log.error("ledger_empty", runs=len(lost), do="`leyden recover` rebuilds it from the object store")
    for danger in wrong:
        log.error("redis_unsafe", danger=danger, or_else="LEYDEN_TASK_API_UNSAFE_REDIS=true")
    return bool(wrong) and not parts.settings.unsafe_redis


async def _serve(parts: Parts) -> int:
    settings = parts.settings
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        log.error("cannot_listen", host=settings.host, port=settings.port, error=str(error))
        return 1
    config = uvicorn.Config(
        create_app(parts),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=10,
    )
    server = _Server(config)
    tasks = [asyncio.create_task(loop) for loop in _loops(parts)]
    serving = asyncio.create_task(server.serve([listener]))
    stopping = asyncio.create_task(parts.stop.wait())
    log.info("listening", host=settings.host, port=settings.port)
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    parts.stop.set()
    server.should_exit = True
    await asyncio.gather(serving, stopping, *tasks)
    return 0


def _loops(parts: Parts) -> list[Coroutine[None, None, None]]:
    settings, ledger, stop = parts.settings, parts.ledger, parts.stop
    celery = make_celery(settings.broker_url)
    sound = partial(ring, celery, longest=max(LONGEST_QUEUE, settings.rings_ahead))
    dispatcher = Dispatcher(ledger, parts.feeder, sound, partial(waiting, celery), settings)
    return [
        forever("dispatcher", dispatcher.round, settings.dispatch_poll_s, stop),
        forever("reconciler", partial(reconcile, ledger, settings), settings.reconcile_s, stop),
        forever("archiver", partial(archive, ledger, parts.store, settings), settings.archive_s, stop),
        forever("keeper", Keeper(ledger, parts.store, stop).round, settings.keep_s, stop),
        forever("evaluator", Evaluator(ledger, parts.store).round, settings.evaluate_s, stop),
        forever("gauges", Gauges(ledger).refresh, settings.gauges_s, stop),
    ]
