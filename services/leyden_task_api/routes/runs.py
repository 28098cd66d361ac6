"""Runs: created once, listed, read, sealed."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from leyden_contracts import RunSpec, new_run_id
from leyden_contracts.api import RunList, RunView
from leyden_ledger import ReplicaStatus, RunState
from leyden_ledger.recovery import recover_run
from leyden_runtime.tokens import ALL_TENANTS, Claims
from leyden_storage.keys import cancelled_key, run_key, sealed_key
from leyden_task_api.parts import Here, Parts
from leyden_task_api.problems import ProblemError
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, PageSize, RunPath, Start, claims_of
from leyden_task_api.starts import check_source
from leyden_task_api.views import run_view

Holder = Annotated[Claims, Depends(claims_of)]

router = APIRouter(prefix="/v1", tags=["runs"], route_class=BoundedRoute, responses=PROBLEMS)


@router.post("/runs", status_code=201)
async def create_run(parts: Here, holder: Holder, spec: RunSpec, response: Response) -> RunView:
    """Create a run. The same specification under the same id again answers 200; another one, 409."""
    if holder.tenant != ALL_TENANTS:
        if spec.tenant not in (holder.tenant, RunSpec.model_fields["tenant"].default):
            raise ProblemError(403, f"this token is of tenant {holder.tenant!r}: leave `tenant` out")
        spec = spec.model_copy(update={"tenant": holder.tenant})
    spec = spec if spec.id else spec.model_copy(update={"id": new_run_id()})
    run, text = str(spec.id), spec.model_dump_json(indent=2).encode()
    if spec.start and not await asyncio.to_thread(parts.store.exists, run_key(run)):
        await check_source(parts, spec)
    if not await asyncio.to_thread(parts.store.create, run_key(run), text):
        stored = RunSpec.model_validate_json(await asyncio.to_thread(parts.store.get, run_key(run)))
        if stored != spec:
            raise ProblemError(409, f"run {run!r} exists with another specification; runs never change: take a new id")
        # The ledger may have been lost since: then this run is rebuilt, rather than made anew beside its own past.
        if await recover_run(parts.ledger, parts.store, run) is None:
            response.status_code = 200
    elif not await parts.ledger.runs.create(spec):
        response.status_code = 200
    return await _view(parts, run)


@router.get("/runs")
async def list_runs(parts: Here, holder: Holder, start: Start = 0, count: PageSize = 100) -> RunList:
    """List the tenant's runs by id."""
    ids = await parts.ledger.runs.list(None if holder.tenant == ALL_TENANTS else holder.tenant)
    runs = await asyncio.gather(*(_view(parts, run) for run in ids[start : start + count]))
    return RunList(runs=runs, next=start + count if start + count < len(ids) else None)


@router.get("/runs/{run}")
async def show_run(parts: Here, run: RunPath) -> RunView:
    """Return a run's specification and where it stands."""
    return await _view(parts, run)


@router.post("/runs/{run}/seal")
async def seal_run(parts: Here, run: RunPath) -> RunView:
    """Take no more training tasks. Repeating it is harmless."""
    await parts.ledger.runs.get(run)
    await asyncio.to_thread(parts.store.create, sealed_key(run), b"{}")
    await parts.ledger.runs.seal(run)
    return await _view(parts, run)


@router.post("/runs/{run}/cancel")
async def cancel_run(parts: Here, run: RunPath) -> RunView:
    """End a run for good: what waits or runs is cancelled, and nothing more is trained on. Repeating it is harmless."""
    await parts.ledger.runs.get(run)
    await asyncio.to_thread(parts.store.create, cancelled_key(run), b"{}")
    await parts.ledger.runs.cancel(run)
    # The first part; the reconciler does the rest.
    await parts.ledger.episodes.expire(run, parts.settings.trace_grace_s)
    return await _view(parts, run)


@router.post("/runs/{run}/pause")
async def pause_run(parts: Here, run: RunPath) -> RunView:
    """Let no episode start any more, until `resume`. What runs goes on, and the learner uses what is finished."""
    return await _hold(parts, run, "paused")


@router.post("/runs/{run}/resume")
async def resume_run(parts: Here, run: RunPath) -> RunView:
    """Let episodes start again."""
    return await _hold(parts, run, None)


@router.get("/replicas", tags=["replicas"])
async def list_replicas(parts: Here) -> list[ReplicaStatus]:
    """List the live inference replicas, and the policy versions each has proved or refused."""
    return await parts.ledger.replicas.list()


async def _hold(parts: Parts, run: str, why: str | None) -> RunView:
    summary = await parts.ledger.runs.summary(run)
    if summary.held == "recovering":
        raise ProblemError(409, f"the ledger of run {run!r} is being rebuilt; try again when that has ended")
    if summary.state is RunState.CANCELLED:
        raise ProblemError(409, f"run {run!r} is cancelled; nothing of it can start any more")
    await parts.ledger.runs.hold(run, why)
    return await _view(parts, run)


async def _view(parts: Parts, run: str) -> RunView:
    spec, summary = await asyncio.gather(parts.ledger.runs.get(run), parts.ledger.runs.summary(run))
    return run_view(spec, summary)
