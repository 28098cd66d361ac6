"""Runs with stored trajectories behind a task API."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from leyden_contracts import Episode, Trajectory, Verdict
from leyden_ledger import Ledger
from leyden_storage import ObjectStore
from support.learning import make_call
from support.playing import settle
from support.task_api import play

REQUEST = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":2}'}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
TOLD = {"role": "tool", "tool_call_id": "c1", "content": "4"}
ANSWER = {"role": "assistant", "content": "It is 4."}


def text_calls() -> list[dict[str, Any]]:
    """Two calls of one conversation, the second of which goes on from the first."""
    turns: Sequence[tuple[list[dict], dict]] = [(REQUEST, ASKED), ([*REQUEST, ASKED, TOLD], ANSWER)]
    return [
        {
            "span": f"{number:016x}",
            "agent": "solver",
            "model": "gpt",
            "messages": json.dumps(messages),
            "reply": json.dumps([reply]),
        }
        for number, (messages, reply) in enumerate(turns, start=1)
    ]


def trajectory_of(episode: Episode, reward: float, *, output: Any = None, text_only: bool = False) -> Trajectory:
    """Return an episode's trajectory of two calls that differ from episode to episode, or of text alone."""
    head = {name: getattr(episode, name) for name in ("run", "group", "task", "purpose", "attempt")}
    calls = [
        make_call(
            episode.id, number, prompt=range(5 * number), response=(episode.index, number), attempt=episode.attempt
        )
        for number in (1, 2)
    ]
    return Trajectory.model_validate(
        {
            **head,
            "episode": episode.id,
            "reward": reward,
            "verdict": Verdict.TEXT_ONLY if text_only else Verdict.COMPLETE,
            "transitions": () if text_only else [call.model_copy(update={"run": episode.run}) for call in calls],
            "output": output,
            "texts": text_calls() if text_only else [],
        }
    )


async def finish_with_trajectories(
    ledger: Ledger,
    store: ObjectStore,
    run: str,
    reward: Callable[[Episode], float | None] = lambda episode: float(episode.index),
    text_only: Callable[[Episode], bool] = lambda episode: False,
    output: Callable[[Episode], Any] = lambda episode: f"out-{episode.index}",
) -> list[Trajectory]:
    """Run all that is due to its end, each success with its trajectory; return these."""
    made = {}

    async def store_one(ledger: Ledger, run: str, id: str) -> None:
        episode = await ledger.episodes.get(run, id)
        graded = reward(episode)
        assert graded is not None
        made[id] = trajectory_of(episode, graded, output=output(episode), text_only=text_only(episode))
        await settle(ledger, run, made[id], store=store)

    await play(ledger, run, reward, settle=store_one)
    return [made[episode.id] for episode in await ledger.episodes.list(run, count=1000) if episode.id in made]
