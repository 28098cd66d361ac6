"""Stored trajectories: listed, and exported as files."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from leyden_contracts import Episode, EpisodeState, Purpose, RewardVersion, Task, Trajectory, Verdict
from leyden_contracts.api import TrajectoryHead, TrajectoryList
from leyden_contracts.ids import ObjectId
from leyden_contracts.rewards import GRADED, RewardVersionName
from leyden_storage import ObjectNotFound, ObjectStore
from leyden_storage.rewards import read_rewards
from leyden_storage.trajectories import read_batch, stored_trajectories
from leyden_storage.uploads import UploadReader, stored_uploads, task_line
from leyden_task_api.export import FORMATS, Ordered, Selection, rescored
from leyden_task_api.parts import Here, Parts
from leyden_task_api.routes.common import PROBLEMS, BoundedRoute, RunPath, Start
from leyden_task_api.views import head_view

bounded = APIRouter(route_class=BoundedRoute)
router = APIRouter(prefix="/v1/runs/{run}", tags=["trajectories"], responses=PROBLEMS)

PageSize = Annotated[int, Query(ge=1, le=200)]
Rewards = Annotated[RewardVersionName, Query(description="Reward version; `0` is what grading made at the time")]


@bounded.get("/trajectories")
async def list_trajectories(
    parts: Here,
    run: RunPath,
    purpose: Purpose | None = None,
    verdict: Verdict | None = None,
    group: ObjectId | None = None,
    rewards: Rewards = GRADED,
    tasks: Annotated[bool, Query(description="Send their tasks, too")] = False,
    start: Start = 0,
    count: PageSize = 100,
) -> TrajectoryList:
    """List trajectories in order of acceptance, without tokens. `purpose` and `verdict` filter each page."""
    version = await _version(parts, run, rewards)
    if group is None:
        summary = await parts.ledger.runs.summary(run)
        total = sum(n for name, n in summary.counts.items() if name.endswith(f":{EpisodeState.SUCCEEDED}"))
        episodes = await parts.archive.list(run, EpisodeState.SUCCEEDED, purpose, start, count)
    else:
        found = [one for one in await parts.archive.group(run, group) if one.state is EpisodeState.SUCCEEDED]
        total, episodes = len(found), found[start : start + count]
    wanted = [episode for episode in episodes if purpose in (None, episode.purpose)]
    heads = await asyncio.to_thread(_heads, parts.store, wanted, verdict, version)
    shown = await asyncio.to_thread(_tasks, parts.store, run, heads) if tasks else {}
    return TrajectoryList(trajectories=heads, tasks=shown, next=start + count if start + count < total else None)


router.include_router(bounded)


@router.get("/trajectories/export", response_class=StreamingResponse)
async def export(
    parts: Here,
    run: RunPath,
    format: Literal["jsonl", "parquet", "datasets"] = "jsonl",
    purpose: Purpose | None = None,
    verdict: Verdict | None = None,
    min_reward: float | None = None,
    text_only: Annotated[
        bool, Query(description="Only text-only trajectories, as conversations: for supervised fine-tuning")
    ] = False,
    rewards: Rewards = GRADED,
) -> StreamingResponse:
    """Stream trajectories as one file, the same bytes each time: JSON lines, Parquet, or a tar for `datasets`."""
    version = await _version(parts, run, rewards)
    selection = Selection(purpose, verdict, min_reward, text_only)
    write, media_type = FORMATS[format]
    with ExitStack() as holding:
        holding.enter_context(parts.exports.place())

        def order() -> Ordered:
            found = rescored(stored_trajectories(parts.store, run), version)
            return Ordered(trajectory for trajectory in found if selection.holds(trajectory))

        ordered = await asyncio.to_thread(order)
        holding.callback(ordered.close)
        return _Held(write(run, ordered, text_only), media_type, holding.pop_all())


class _Held(StreamingResponse):
    """A stream that gives back what it needs when it ends, however that is."""

    def __init__(self, content: Iterable[bytes], media_type: str, holding: ExitStack) -> None:
        super().__init__(content, media_type=media_type, headers={"Cache-Control": "no-store"})
        self._holding = holding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._holding:
            await super().__call__(scope, receive, send)


async def _version(parts: Parts, run: str, name: str) -> RewardVersion | None:
    return None if name == GRADED else await asyncio.to_thread(read_rewards, parts.store, run, name)


def _heads(
    store: ObjectStore, episodes: Iterable[Episode], verdict: Verdict | None, version: RewardVersion | None
) -> list[TrajectoryHead]:
    lines = {(line.episode, line.attempt): line for line in version.lines} if version else {}
    heads = []
    for trajectory in _stored(store, episodes):
        head = head_view(trajectory)
        if verdict not in (None, head.verdict):
            continue
        if version:
            line = lines.get((head.episode, head.attempt))
            update = {"reward": line.reward, "rewards": line.rewards} if line else {"reward": None, "rewards": {}}
            head = head.model_copy(update=update)
        heads.append(head)
    return heads


def _stored(store: ObjectStore, episodes: Iterable[Episode]) -> Iterator[Trajectory]:
    """Yield the episodes' trajectories, each of their batches read once. Some are gone by the run's retention."""
    ordered = list(episodes)
    batches = {(episode.run, episode.batch) for episode in ordered if episode.batch}
    wanted = {episode.id for episode in ordered}
    found: dict[str, Trajectory] = {}
    for run, batch in batches:
        with suppress(ObjectNotFound):
            found |= {one.episode: one for one in read_batch(store, run, batch, wanted=wanted.__contains__)}
    yield from (found[episode.id] for episode in ordered if episode.id in found)


def _tasks(store: ObjectStore, run: str, heads: Iterable[TrajectoryHead]) -> dict[str, Task]:
    """Return the heads' tasks. A group's id says in which upload its task is, and where."""
    batches = {batch[:12]: batch for batch in stored_uploads(store, run)}
    readers: dict[str, UploadReader] = {}
    found: dict[str, Task] = {}
    for head in heads:
        if head.task in found:
            continue
        _, batch, number = head.group.rsplit("-", 2)
        reader = readers.get(batch) or readers.setdefault(batch, UploadReader(store, run, batches[batch]))
        (task,) = reader.tasks(int(number), 1)
        found[head.task] = Task.model_validate_json(task_line(store, run, task.ref))
    return found
