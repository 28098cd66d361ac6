"""Uploads of tasks. The body is read as a stream: the route is not bounded in time, only each step of it is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from leyden_contracts import TaskUpload
from leyden_contracts.api import Uploaded
from leyden_task_api.intake import accept, settle_question
from leyden_task_api.parts import Here
from leyden_task_api.problems import ProblemError
from leyden_task_api.retrying import retry_failed
from leyden_task_api.routes.common import PROBLEMS, RunPath
from leyden_task_api.upload import Spool, spool_lines

router = APIRouter(prefix="/v1", tags=["tasks"], responses=PROBLEMS)

_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines", "application/ndjson")
_TASK = {"$ref": "#/components/schemas/TaskInput"}
_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": {"oneOf": [_TASK, {"type": "array", "items": _TASK}]}},
        "application/x-ndjson": {"schema": {"type": "string", "description": "One task a line"}},
    },
}
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1, max_length=200, description="The same key twice makes the same episodes. Default: the content"
    ),
]


@router.post("/runs/{run}/tasks", status_code=202, openapi_extra={"requestBody": _BODY})
async def upload_tasks(
    parts: Here,
    run: RunPath,
    request: Request,
    asked: Annotated[TaskUpload, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Uploaded:
    """Accept tasks: a JSON task or list of them, or JSONL. All of them, or, if one line is bad, none."""
    spec, summary = await asyncio.gather(parts.ledger.runs.get(run), parts.ledger.runs.summary(run))
    asked = settle_question(asked, spec, summary)
    with parts.uploads.place(), Spool(asked, parts.settings.max_task_bytes) as spool:
        await read_body(request, spool, parts.settings.upload_idle_s)
        return await accept(parts, run, asked, spool, idempotency_key)


@router.post("/runs/{run}/retry", status_code=202)
async def retry(parts: Here, run: RunPath) -> list[Uploaded]:
    """Upload the tasks of failed and timed-out episodes again; those episodes stay as they ended."""
    return await retry_failed(parts, run)


async def read_body(request: Request, spool: Spool, idle_s: float) -> None:
    """Spool what is sent, as JSONL or as one JSON document. Raises ProblemError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError(415, "send the body without Content-Encoding")
    if kind in _LINES:
        await spool_lines(_chunks(request, idle_s), spool)
    elif kind == "application/json":
        body = b"".join([chunk async for chunk in _chunks(request, idle_s)])
        await asyncio.to_thread(spool.add_document, body)
    else:
        raise ProblemError(415, f"send it as application/json or {' or '.join(_LINES)}, not {kind or 'nothing'!r}")


async def _chunks(request: Request, idle_s: float) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(idle_s):
                chunk = await anext(stream, None)
        except TimeoutError as error:
            headers = {"Connection": "close"}
            raise ProblemError(408, f"nothing came for {idle_s:g} s: send it again", headers=headers) from error
        if chunk is None:
            return
        yield chunk
