"""A deployment that runs for as long as a block does."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from leyden_standalone.deployment import Deployment, Options, lock, open_deployment
from leyden_standalone.parts import make_stages
from leyden_standalone.supervisor import Supervisor


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[tuple[Deployment, Supervisor]]:
    """Start everything, yield, and stop everything. Raises InUse, StartFailed."""
    with lock(options.data_dir):
        deployment = open_deployment(options)
        supervisor = Supervisor(make_stages(deployment), options.data_dir / "logs")
        try:
            await supervisor.start()
            deployment.write_connection()
            yield deployment, supervisor
        finally:
            await supervisor.stop()


@contextmanager
def running_beside(options: Options) -> Iterator[tuple[Deployment, Supervisor]]:
    """The same for blocking code: everything runs beside it, supervised from a thread of its own."""
    started: Future[tuple[Deployment, Supervisor, asyncio.Event, asyncio.AbstractEventLoop]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        try:
            async with running(options) as (deployment, supervisor):
                started.set_result((deployment, supervisor, stop, asyncio.get_running_loop()))
                await stop.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="supervisor")
    thread.start()
    deployment, supervisor, stop, loop = started.result()
    try:
        yield deployment, supervisor
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
