"""The start of a run: its data is uploaded once, before anything is trained."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request

from leyden_contracts.api import StartView
from leyden_contracts.start_line import start_line
from leyden_task_api.parts import Here
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, RunPath
from leyden_task_api.routes.tasks import read_body
from leyden_task_api.starts import accept_start, data_start, show_start
from leyden_task_api.upload import Spool

bounded = APIRouter(route_class=BoundedRoute)
router = APIRouter(prefix="/v1/runs/{run}", tags=["runs"], responses=PROBLEMS)
_LINE = {
    "type": "object",
    "description": "`messages`, or `prompt` and `completion`; for preferences `prompt`, `chosen` and `rejected`",
}
_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": {"oneOf": [_LINE, {"type": "array", "items": _LINE}]}},
        "application/x-ndjson": {"schema": {"type": "string", "description": "One of them a line"}},
    },
}


@router.put("/start", status_code=202, openapi_extra={"requestBody": _BODY})
async def upload_start(parts: Here, run: RunPath, request: Request) -> StartView:
    """Accept what the run's start learns from: all of it, or, if one line is bad, nothing. Repeating it is harmless."""
    spec = await parts.ledger.runs.get(run)
    start = data_start(spec)
    to_line = partial(start_line, kind=start.kind, roles=spec.trained_roles)
    with parts.uploads.place(), Spool(start, parts.settings.max_task_bytes, to_line) as spool:
        await read_body(request, spool, parts.settings.upload_idle_s)
        return await accept_start(parts, run, spool)


@bounded.get("/start")
async def show(parts: Here, run: RunPath) -> StartView:
    """Say where the run's start stands."""
    return await show_start(parts, run)


router.include_router(bounded)
