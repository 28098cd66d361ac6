"""Evaluate one policy version on a file of tasks."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leyden_client.client import LeydenClient
from leyden_client.errors import ClientError
from leyden_client.files import read_tasks
from leyden_contracts import TERMINAL_STATES, Episode, Task, TaskInput, episode_id
from leyden_contracts.api import RunCounters, Uploaded

OnProgress = Callable[[int, int], None]
"""Called with (episodes ended, episodes in all)."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """How one version did."""

    version: int
    success: float
    """Mean reward of the graded episodes; NaN if there is none."""
    n: int
    """Graded episodes."""
    failed: int
    """Episodes that ended without a reward. They are in no mean: a failure is not a zero."""
    by_tag: dict[str, tuple[float, int]] = field(default_factory=dict)
    """`tag=value` -> (mean reward, graded episodes)."""

    @property
    def stderr(self) -> float:
        """Standard error of `success`, as of a share: for rewards of 0 and 1."""
        inside = 0 <= self.success <= 1
        return math.sqrt(self.success * (1 - self.success) / self.n) if self.n and inside else math.nan


def evaluate(
    client: LeydenClient,
    run: str,
    tasks: Path | Sequence[TaskInput],
    version: int,
    samples: int = 1,
    *,
    key: str | None = None,
    on_progress: OnProgress | None = None,
    poll_s: float = 0.5,
    timeout_s: float = math.inf,
) -> EvalResult:
    """Run `samples` episodes of every task on `version`, wait for them, and return how they did.

    Without a `key`, evaluating the same again returns the first evaluation's result.

    Raises:
        InputError: the file is not usable.
        ClientError: it took longer than `timeout_s`, or a replica answered with another version.
        ApiError, ApiUnreachable: the API refused, or is away.
    """
    chosen = read_tasks(tasks) if isinstance(tasks, Path) else list(tasks)
    before = client.run(run).summary
    uploaded = client.upload_tasks(run, chosen, purpose="eval", samples=samples, policy_version=version, key=key)
    stored = [Task.of(task) for task in chosen]
    start = 0 if uploaded.repeated else sum(before.counts.values())
    ours = _ids(stored, uploaded, samples)
    enough = len(ours) + (0 if uploaded.repeated else _ended(before))
    until = time.monotonic() + timeout_s
    while True:
        ended = _ended(client.run(run).summary)
        if on_progress:
            on_progress(max(0, min(len(ours), ended - enough + len(ours))), len(ours))
        if ended >= enough:
            episodes = [episode for episode in client.episodes(run, None, "eval", start) if episode.id in ours]
            if len(episodes) == len(ours) and all(episode.state in TERMINAL_STATES for episode in episodes):
                return _result(version, stored, episodes)
        if time.monotonic() > until:
            raise ClientError(f"the evaluation of version {version} was not over after {timeout_s:.0f} s")
        time.sleep(poll_s)


def _ids(stored: list[Task], uploaded: Uploaded, samples: int) -> set[str]:
    groups = [f"{task.id}-{uploaded.batch}-{number}" for number, task in enumerate(stored)]
    return {episode_id(group, index) for group in groups for index in range(samples)}


def _ended(summary: RunCounters) -> int:
    return sum(summary.counts.get(f"eval:{state}", 0) for state in TERMINAL_STATES)


def _result(version: int, stored: list[Task], episodes: list[Episode]) -> EvalResult:
    graded = [episode for episode in episodes if episode.reward is not None]
    wrong = [episode for episode in graded if episode.policy_version not in (None, version)]
    if wrong:
        served = wrong[0].policy_version
        raise ClientError(f"version {version} was to be evaluated, but {wrong[0].id} ran on version {served}")
    tags = {task.id: [f"{name}={value}" for name, value in task.tags.items()] for task in stored}
    rewards: dict[str, list[float]] = defaultdict(list)
    for episode in graded:
        for tag in tags[episode.task]:
            rewards[tag].append(episode.reward or 0.0)
    return EvalResult(
        version=version,
        success=_mean(episode.reward or 0.0 for episode in graded),
        n=len(graded),
        failed=len(episodes) - len(graded),
        by_tag={tag: (_mean(values), len(values)) for tag, values in sorted(rewards.items())},
    )


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every) if every else math.nan
