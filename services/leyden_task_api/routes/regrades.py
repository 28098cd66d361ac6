"""Reward versions: stored trajectories, scored again. Grading happens at the client; this keeps the results."""

import asyncio
import time
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Path, Response

from leyden_contracts import EpisodeState, NewRewards, RewardVersion
from leyden_contracts.api import RewardVersionHead
from leyden_contracts.rewards import GRADED, RewardVersionName
from leyden_storage import ObjectNotFound
from leyden_storage.rewards import read_rewards, reward_versions, write_rewards
from leyden_task_api.parts import Here, Parts
from leyden_task_api.problems import ProblemError
from leyden_task_api.routes.common import PROBLEMS, RunPath
from leyden_task_api.views import rewards_view

router = APIRouter(prefix="/v1/runs/{run}/regrades", tags=["regrades"], responses=PROBLEMS)
_PAGE = 2000
_MOST_FAULTS = 20


@router.post("", status_code=201)
async def add_rewards(parts: Here, run: RunPath, given: NewRewards, response: Response) -> RewardVersionHead:
    """Store a reward version. The same under the same name again answers 200; another one, 409."""
    if given.version == GRADED:
        raise ProblemError(422, f"version {GRADED!r} is what grading made at the time: choose another name")
    faults = await _faults(parts, run, given)
    if faults:
        raise ProblemError(422, "nothing was stored: see `errors`", faults[:_MOST_FAULTS], "Invalid rewards")
    version = RewardVersion(**given.model_dump(), run=run, created=time.time())
    stored = await asyncio.to_thread(write_rewards, parts.store, version)
    if stored.model_copy(update={"created": version.created}) != version:
        raise ProblemError(409, f"run {run!r} has other rewards under {given.version!r}, and they never change")
    if stored != version:
        response.status_code = 200
    return rewards_view(stored)


@router.get("")
async def list_rewards(parts: Here, run: RunPath) -> list[RewardVersionHead]:
    """List the run's reward versions, oldest first."""

    def read() -> list[RewardVersion]:
        return [read_rewards(parts.store, run, name) for name in reward_versions(parts.store, run)]

    found = await asyncio.to_thread(read)
    return [rewards_view(one) for one in sorted(found, key=lambda one: (one.created, one.version))]


@router.get("/{version}")
async def show_rewards(parts: Here, run: RunPath, version: Annotated[RewardVersionName, Path()]) -> RewardVersion:
    """Return a reward version with all its lines."""
    try:
        return await asyncio.to_thread(read_rewards, parts.store, run, version)
    except ObjectNotFound as error:
        raise ProblemError(404, f"run {run!r} has no reward version {version!r}") from error


async def _faults(parts: Parts, run: str, given: NewRewards) -> list[str]:
    """Return what is wrong with the rewards: each is of the attempt that won a succeeded episode, and is there once."""
    named = [line.episode for line in given.lines] + list(given.failed)
    if not named:
        return ["there is no episode in it"]
    attempts = await _attempts(parts, run)
    faults = [f"{episode}: it is no succeeded episode of run {run!r}" for episode in named if episode not in attempts]
    faults += [
        f"{line.episode}: attempt {attempts[line.episode]} won, not {line.attempt}"
        for line in given.lines
        if attempts.get(line.episode, line.attempt) != line.attempt
    ]
    return faults + [f"{episode}: it is there twice" for episode, times in Counter(named).items() if times > 1]


async def _attempts(parts: Parts, run: str) -> dict[str, int]:
    attempts: dict[str, int] = {}
    start = 0
    while page := await parts.archive.list(run, EpisodeState.SUCCEEDED, None, start, _PAGE):
        attempts |= {episode.id: episode.attempt for episode in page}
        start += len(page)
    return attempts
