"""`python -m leyden_worker`: one worker process."""

import asyncio
import contextlib
import os
import socket
import sys
from concurrent.futures import CancelledError

import structlog

from leyden_ledger import Ledger
from leyden_runtime.doorbell import Listener, make_celery
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings, secret
from leyden_runtime.shutdown import sleep_unless, stop_event
from leyden_runtime.tokens import Tokens
from leyden_runtime.web import make_app, run_app
from leyden_storage import ObjectStore, StoreError, open_store
from leyden_worker import kernel, metrics
from leyden_worker.environment import Environments
from leyden_worker.settings import WorkerSettings
from leyden_worker.supervisor import Supervisor
from leyden_worker.tasks import RunReader, TaskReader
from leyden_worker.warm_pool import WarmPool

log = structlog.get_logger()
_LISTENER_STOP_S = 5.0
_WATCH_S = 1.0


async def serve(settings: WorkerSettings, store: ObjectStore, tokens: Tokens) -> int:
    """Run attempts until SIGTERM or SIGINT; return the exit code."""
    stop = stop_event()
    ledger = Ledger.connect(settings.redis_url)
    environments = Environments(settings.gateway_url, settings.collector_url, tokens)
    pool = WarmPool(environments, settings.agent_folders, settings.import_timeout_s, settings.idle_parents)
    name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
    supervisor = Supervisor(name, settings, ledger, RunReader(ledger), TaskReader(store), pool, environments)
    listener = _listener(settings, supervisor, asyncio.get_running_loop())
    metrics.CAPACITY.set(settings.concurrency)
    listener.start()
    web = asyncio.create_task(run_app(make_app(), settings.host, settings.port, stop))
    try:
        strays: set[int] = set()
        while not await sleep_unless(stop, _WATCH_S):
            # Of warm parents that were killed: all others see to their agents' descendants themselves.
            strays = kernel.end_strays(pool.pids, strays)
            if not listener.alive or web.done():
                log.error("worker_broke", listening=listener.alive)
                return 1
        return 0
    finally:
        stop.set()
        listener.close()
        await supervisor.stop()
        await pool.close()
        await asyncio.to_thread(listener.join, _LISTENER_STOP_S)
        await web
        await ledger.aclose()


def _listener(settings: WorkerSettings, supervisor: Supervisor, loop: asyncio.AbstractEventLoop) -> Listener:
    def answer(run: str, episode: str) -> None:
        """Wait for the attempt, in a thread of Celery's; its work is done in the loop."""
        with contextlib.suppress(CancelledError):
            asyncio.run_coroutine_threadsafe(supervisor.supervise(run, episode), loop).result()

    return Listener(make_celery(settings.broker_url), settings.concurrency, answer)


def main() -> None:
    """Run until told to stop. Exits with 2 if the settings are wrong."""
    configure_logs("worker")
    settings = load_settings(WorkerSettings)
    try:
        store = open_store(settings.store_url, settings.s3_access_key, secret(settings.s3_secret_key))
        tokens = Tokens(settings.signing_key.get_secret_value())
    except (StoreError, ValueError) as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    kernel.hide()
    kernel.adopt_orphans()
    raise SystemExit(asyncio.run(serve(settings, store, tokens)))


if __name__ == "__main__":
    main()
