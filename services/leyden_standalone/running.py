"""A deployment that runs for as long as a block does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leyden_standalone.deployment import Deployment, Options, lock, open_deployment
from leyden_standalone.parts import make_parts
from leyden_standalone.supervisor import Supervisor


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[tuple[Deployment, Supervisor]]:
    """Start everything, yield, and stop everything. Raises InUse, StartFailed."""
    with lock(options.data_dir):
        deployment = open_deployment(options)
        supervisor = Supervisor(make_parts(deployment), options.data_dir / "logs")
        try:
            await supervisor.start()
            deployment.write_connection()
            (options.data_dir / "pids").write_text("\n".join(f"{k} {v}" for k, v in supervisor.pids.items()))
            yield deployment, supervisor
        finally:
            await supervisor.stop()
