"""Scoring stored trajectories again: the outputs come here, the grader runs here, and only its numbers go back."""

import json
from collections.abc import Callable
from typing import Any

from leyden_agents.contract import AgentNotFound, GraderError
from leyden_agents.grading import GraderProcess
from leyden_client.client import LeydenClient
from leyden_client.errors import ClientError, InputError
from leyden_contracts import NewRewards, RewardLine
from leyden_contracts.api import RewardVersionHead

_CUT_BYTES = 16384
"""A worker stores no more of an output: what has as many was cut."""
_SHOWN = 20


def regrade(
    client: LeydenClient,
    run: str,
    grader: str,
    *,
    name: str | None = None,
    timeout_s: float = 60,
    progress: Callable[[int], None] = lambda episodes: None,
) -> tuple[RewardVersionHead, dict[str, str]]:
    """Score all stored trajectories of a run with another grader, as a new, immutable reward version.

    Args:
        client: of the run's API.
        run: the run's id.
        grader: `module:function`, called with (task, output) as in training, in a process of its own.
        name: of the version; by default the next number.
        timeout_s: for one output.
        progress: told how many episodes are through.

    Returns:
        The version, and episode -> why it could not be scored. Such an episode has no reward; it is no zero.

    Raises:
        InputError: there is no such grader.
        ClientError: no episode could be scored; nothing is stored.
        ApiError, ApiUnreachable: the API refuses, or is away.
    """
    lines: list[RewardLine] = []
    failed: dict[str, str] = {}
    with GraderProcess(grader, timeout_s) as process:
        try:
            process.start()
        except (AgentNotFound, GraderError) as error:
            raise InputError(f"the grader cannot be used: {error}") from error
        for head, task in client.gradable(run):
            try:
                _check_whole(head.output)
                graded = process.grade(task.model_dump(mode="json"), head.output)
                line = RewardLine(
                    episode=head.episode, attempt=head.attempt, reward=graded.reward, rewards=graded.rewards
                )
                lines.append(line)
            except (GraderError, AgentNotFound) as error:
                failed[head.episode] = str(error)
            progress(len(lines) + len(failed))
    if not lines:
        told = [f"{episode}: {why}" for episode, why in failed.items()][:_SHOWN]
        raise ClientError(f"no episode of run {run!r} could be scored; nothing was stored", told)
    new = NewRewards(
        version=name or _next(client, run),
        grader=grader,
        grader_sha256=process.sha256,
        lines=tuple(lines),
        failed=failed,
    )
    return client.add_rewards(run, new), failed


def _check_whole(output: Any) -> None:
    if len(json.dumps(output, ensure_ascii=False).encode(errors="replace")) >= _CUT_BYTES:
        raise GraderError("its output was cut when it was stored: a grader cannot see all of it")


def _next(client: LeydenClient, run: str) -> str:
    numbers = [int(one.version) for one in client.reward_versions(run) if one.version.isdigit()]
    return str(max(numbers, default=0) + 1)
