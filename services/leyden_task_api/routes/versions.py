"""A run's versions: how good each is, what made it, and which one is to be used."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path

from leyden_contracts import Promotion, adapter_name
from leyden_contracts.api import AdapterView, Lineage, Promote, RollBack, VersionList
from leyden_storage import ObjectNotFound
from leyden_task_api.lineage import lineage_view, versions_view
from leyden_task_api.parts import Here, Parts
from leyden_task_api.problems import ProblemError
from leyden_task_api.promotion import NothingBefore
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, RunPath

router = APIRouter(prefix="/v1/runs/{run}", tags=["versions"], route_class=BoundedRoute, responses=PROBLEMS)


@router.get("/versions")
async def list_versions(parts: Here, run: RunPath) -> VersionList:
    """List the policy versions, the base model first: scores, where each is served, which one is promoted."""
    # The promotions first: this enters in the ledger what a crash kept from it.
    promotions = await parts.promoter.history(run)
    spec, progress, replicas = await asyncio.gather(
        parts.ledger.runs.get(run), parts.ledger.evaluations.progress(run), parts.ledger.replicas.list()
    )
    adapters = await asyncio.to_thread(parts.adapters.list, spec)
    proved = await parts.ledger.promotions.proved(run, [0, *(adapter.version for adapter in adapters)])
    return versions_view(spec, adapters, progress, replicas, proved, promotions)


@router.get("/versions/{version}")
async def show_version(parts: Here, run: RunPath, version: Annotated[int, Path(ge=0, le=10**9)]) -> Lineage:
    """Return a version's lineage: its parents, the groups and episodes it was trained on, configuration, files."""
    spec, progress = await asyncio.gather(parts.ledger.runs.get(run), parts.ledger.evaluations.progress(run))
    await _exists(parts, run, version)
    manifest = await asyncio.to_thread(parts.adapters.manifest, spec, version) if version else None
    parents = await asyncio.to_thread(parts.adapters.parents, spec, version)
    first = await asyncio.to_thread(parts.adapters.manifest, spec, 1) if version and spec.start else None
    return lineage_view(spec, version, manifest, parents, progress, await parts.promoter.history(run), first)


@router.post("/promote")
async def promote(parts: Here, run: RunPath, asked: Promote) -> Promotion:
    """Make a version the one to use. Repeating it is harmless."""
    await _exists(parts, run, asked.version)
    if not await parts.ledger.promotions.proved(run, [asked.version]):
        raise ProblemError(409, await _unproved(parts, run, asked.version))
    return await _compared(parts, await parts.promoter.promote(run, asked.version))


@router.post("/rollback")
async def roll_back(parts: Here, run: RunPath, asked: RollBack | None = None) -> Promotion:
    """Return to what was promoted before. With `undo`, repeating it is harmless."""
    try:
        return await _compared(parts, await parts.promoter.roll_back(run, asked.undo if asked else None))
    except NothingBefore as error:
        detail = f"nothing was promoted before in run {run!r}: promote the version that you want instead"
        raise ProblemError(409, detail) from error


async def _exists(parts: Parts, run: str, version: int) -> AdapterView | None:
    """Return the stored version; None is the base model. Raises ProblemError (404)."""
    if version == 0:
        return None
    spec = await parts.ledger.runs.get(run)
    try:
        return await asyncio.to_thread(parts.adapters.one, spec, version)
    except ObjectNotFound as error:
        raise ProblemError(404, f"run {run!r} has no version {version}") from error


async def _unproved(parts: Parts, run: str, version: int) -> str:
    """Say why a version cannot be promoted, and what to do."""
    spec, replicas = await asyncio.gather(parts.ledger.runs.get(run), parts.ledger.replicas.list())
    names = [adapter_name(run, role, version) for role in spec.trained_roles]
    for replica in replicas:
        for name in names:
            if name in replica.rejected:
                return f"version {version} is withheld by replica {replica.id!r}: {replica.rejected[name]}"
    return (
        f"no replica has proved version {version}: wait until one has, or make one load it with an evaluation "
        f"(`leyden tasks upload {run} FILE --eval --policy-version {version}`)"
    )


async def _compared(parts: Parts, promotion: Promotion) -> Promotion:
    """Let what a person chose be evaluated too, even if the run has ended: the next versions are compared with it."""
    if (await parts.ledger.runs.summary(promotion.run)).held_out:
        await parts.ledger.evaluations.watch(promotion.run)
    return promotion
