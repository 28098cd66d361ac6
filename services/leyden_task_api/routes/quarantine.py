"""Refused spans: shown with the reason, and counted."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from leyden_contracts.api import QuarantineCounts, QuarantineList
from leyden_task_api.parts import Here
from leyden_task_api.quarantine import count_refused, refused_spans
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, RunPath

router = APIRouter(
    prefix="/v1/runs/{run}/quarantine", tags=["quarantine"], route_class=BoundedRoute, responses=PROBLEMS
)


@router.get("")
async def list_quarantine(
    parts: Here,
    run: RunPath,
    after: Annotated[str, Query(pattern=r"^([A-Za-z0-9._-]{1,160}:\d{1,9})?$", description="`next` of a page")] = "",
    count: Annotated[int, Query(ge=1, le=200)] = 50,
) -> QuarantineList:
    """List the spans that were refused, each with the reason."""
    spans, following = await asyncio.to_thread(refused_spans, parts.store, run, after, count)
    return QuarantineList(spans=spans, next=following)


@router.get("/counts")
async def quarantine_counts(parts: Here, run: RunPath) -> QuarantineCounts:
    """Count the run's refused spans by kind."""
    kinds, complete = await asyncio.to_thread(count_refused, parts.store, run)
    return QuarantineCounts(kinds=kinds, complete=complete)
