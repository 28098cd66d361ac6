"""Reading ahead: while a step is computed, what the next one will need comes from the store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from leyden_learner.groups import GroupReader

log = structlog.get_logger()

_LOOK_S = 0.2
"""How often the groups that have finished meanwhile are looked for."""


@asynccontextmanager
async def reading_ahead(reader: GroupReader, skip: int, count: int) -> AsyncIterator[None]:
    """For as long as the block runs, read the trajectories of the `count` groups that come after the next `skip`.

    It only fills the reader's cache: what is trained on is asked of the ledger when its step begins, as ever. A failure
    is left to that step, too.
    """
    task = asyncio.create_task(_read(reader, skip, count))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _read(reader: GroupReader, skip: int, count: int) -> None:
    seen: set[str] = set()
    try:
        while len(seen) < count:
            for group in await reader.after(skip, count):
                if group.id not in seen:
                    await reader.trajectories(group)
                    seen.add(group.id)
            await asyncio.sleep(_LOOK_S)
    except Exception as error:  # the step that needs them will meet it again
        log.warning("not_read_ahead", error=repr(error))
