"""What a run has produced: trajectories, adapters, curves."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from leyden_contracts import RunSpec
from leyden_contracts.api import AdapterView, RunMetrics, TrajectoryView
from leyden_contracts.ids import RoleName
from leyden_storage.trajectories import TrajectoryNotFound, read_trajectory
from leyden_task_api.parts import Here
from leyden_task_api.problems import ProblemError
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, EpisodePath, RunPath
from leyden_task_api.views import metrics_view, trajectory_view

router = APIRouter(prefix="/v1/runs/{run}", tags=["results"], route_class=BoundedRoute, responses=PROBLEMS)

RoleQuery = Annotated[RoleName | None, Query()]
FileName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


@router.get("/trajectories/{episode}")
async def show_trajectory(parts: Here, run: RunPath, episode: EpisodePath) -> TrajectoryView:
    """Return an episode's trajectory; it exists once the episode has succeeded."""
    batch = (await parts.archive.get(run, episode)).batch
    if batch is None:
        raise TrajectoryNotFound(f"there is no trajectory of {episode}: it has not succeeded")
    return trajectory_view(await asyncio.to_thread(read_trajectory, parts.store, run, batch, episode))


@router.get("/adapters")
async def list_adapters(parts: Here, run: RunPath, role: RoleQuery = None) -> list[AdapterView]:
    """List the stored policy versions, ascending, of one trained role; without `role`, of the first by name."""
    spec = await parts.ledger.runs.get(run)
    return await asyncio.to_thread(parts.adapters.list, spec, _trained(spec, role))


@router.get("/adapters/{version}/{file}", response_class=Response)
async def download(
    parts: Here, run: RunPath, version: Annotated[int, Path(ge=1)], file: FileName, role: RoleQuery = None
) -> Response:
    """Download a file of a policy version; `manifest.json` lists them with their hashes. `role`: as above."""
    spec = await parts.ledger.runs.get(run)
    body = await asyncio.to_thread(parts.adapters.file, spec, _trained(spec, role), version, file)
    return Response(body, media_type="application/octet-stream")


@router.get("/metrics")
async def metrics(parts: Here, run: RunPath, role: RoleQuery = None) -> RunMetrics:
    """Return the run's curves: each step's figures of a `role`, and the mean reward of evaluations by version."""
    spec, summary = await asyncio.gather(parts.ledger.runs.get(run), parts.ledger.runs.summary(run))
    return metrics_view(summary, await asyncio.to_thread(parts.adapters.list, spec, _trained(spec, role)))


def _trained(spec: RunSpec, role: str | None) -> str:
    """Return the trained role that is meant. Raises ProblemError (404)."""
    if role is None:
        return spec.lead_role
    if role not in spec.trained_roles:
        raise ProblemError(404, f"run {spec.id!r} trains {', '.join(spec.trained_roles)}, not {role!r}")
    return role
