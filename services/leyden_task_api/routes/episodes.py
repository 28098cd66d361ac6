"""Episodes: listed, read, cancelled."""

import asyncio
import contextlib

from fastapi import APIRouter

from leyden_contracts import Episode, EpisodeState, Purpose
from leyden_contracts.api import EpisodeList
from leyden_ledger import EpisodeNotFound
from leyden_task_api.parts import Here
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, EpisodePath, PageSize, RunPath, Start

router = APIRouter(prefix="/v1/runs/{run}/episodes", tags=["episodes"], route_class=BoundedRoute, responses=PROBLEMS)


@router.get("")
async def list_episodes(
    parts: Here,
    run: RunPath,
    state: EpisodeState | None = None,
    purpose: Purpose | None = None,
    start: Start = 0,
    count: PageSize = 100,
) -> EpisodeList:
    """List episodes in order of acceptance. `state` selects before paging; `purpose` filters each page."""
    summary, episodes = await asyncio.gather(
        parts.ledger.runs.summary(run), parts.archive.list(run, state, purpose, start, count)
    )
    total = sum(n for name, n in summary.counts.items() if state is None or name.endswith(f":{state}"))
    return EpisodeList(episodes=episodes, next=start + count if start + count < total else None)


@router.get("/{episode}")
async def show_episode(parts: Here, run: RunPath, episode: EpisodePath) -> Episode:
    """Return one episode."""
    return await parts.archive.get(run, episode)


@router.post("/{episode}/cancel")
async def cancel_episode(parts: Here, run: RunPath, episode: EpisodePath) -> Episode:
    """End an episode as cancelled, unless it has ended; return how it ended."""
    with contextlib.suppress(EpisodeNotFound):  # in Redis: it may have ended and be in the archive
        await parts.ledger.episodes.cancel(run, episode)
    return await parts.archive.get(run, episode)
