"""A run's events as they happen: server-sent events."""

import json
from collections.abc import AsyncIterator
from typing import Annotated

import structlog
from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from redis import RedisError

from leyden_task_api.parts import Here, Parts
from leyden_task_api.routes.common import PROBLEMS, RunPath

log = structlog.get_logger()
router = APIRouter(prefix="/v1", tags=["events"], responses=PROBLEMS)

# Short, so that a stopping process does not wait for readers of a quiet run.
_WAIT_MS = 1000
_ID = r"^\d{1,19}(-\d{1,19})?$"


@router.get("/runs/{run}/events", response_class=StreamingResponse)
async def events(
    parts: Here,
    run: RunPath,
    last_event_id: Annotated[str | None, Header(pattern=_ID)] = None,
    after: Annotated[str, Query(pattern=_ID)] = "0",
) -> StreamingResponse:
    """Stream the events after `Last-Event-ID`, or `after`; by default all that are kept, and then new ones."""
    await parts.ledger.runs.get(run)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _stream(parts, run, last_event_id or after), media_type="text/event-stream", headers=headers
    )


async def _stream(parts: Parts, run: str, after: str) -> AsyncIterator[bytes]:
    while not parts.stop.is_set():
        try:
            found = await parts.ledger.events.read(run, after, block_ms=_WAIT_MS)
        except RedisError as error:
            # The reader connects again with the last id it has seen.
            log.warning("events_ended", run=run, error=str(error))
            return
        for after, fields in found:
            yield f"id: {after}\nevent: {fields.get('kind', 'event')}\ndata: {json.dumps(fields)}\n\n".encode()
        if not found:
            yield b": quiet\n\n"
