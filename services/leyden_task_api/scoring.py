"""From an evaluation's episodes to its score, and from scores to what is promoted. Pure.

An episode that failed says nothing about the policy (I6): it is counted, and never scored. Too many of them, and there
is no score at all: those that are left may be the easy ones.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean

from leyden_contracts import Episode, EpisodeState, Evaluation, Promotion

LEAST_SUCCEEDED = 0.9
"""Share of the episodes that must have succeeded for a score."""
_Z = NormalDist().inv_cdf(0.975)
Interval = tuple[float, float]


def judge(run: str, version: int, batch: str, episodes: Sequence[Episode], expected: int, now: float) -> Evaluation:
    """Return the result of an evaluation of `expected` episodes; those that were never made count as cancelled."""
    counts = Counter(str(episode.state) for episode in episodes)
    if missing := expected - len(episodes):
        counts[EpisodeState.CANCELLED.value] += missing
    graded = [episode for episode in episodes if episode.reward is not None]
    reason = _why_none(version, graded, expected)
    rewards = {episode.id: episode.reward or 0.0 for episode in graded}
    return Evaluation(
        run=run,
        version=version,
        batch=batch,
        counts=dict(sorted(counts.items())),
        score=None if reason else fmean(rewards.values()),
        interval=None if reason else interval(by_task(graded)),
        reason=reason,
        created=now,
    )


def by_task(graded: Sequence[Episode]) -> list[list[float]]:
    """Return the rewards of each task's episodes."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for episode in graded:
        rewards[episode.group].append(episode.reward or 0.0)
    return list(rewards.values())


def interval(rewards: Sequence[Sequence[float]]) -> Interval | None:
    """Return the 95 % confidence interval of the mean of all rewards, given by task; None for less than two tasks.

    Episodes of one task are alike: the variance is that of the tasks (a cluster-robust one). Single yes-or-no rewards
    get Wilson's interval, which has a width even where all are alike.
    """
    if len(rewards) < 2:
        return None
    every = [reward for task in rewards for reward in task]
    if len(every) == len(rewards) and set(every) <= {0.0, 1.0}:
        return _wilson(sum(every), len(every))
    mean, tasks = fmean(every), len(rewards)
    spread = sum(sum(reward - mean for reward in task) ** 2 for task in rewards)
    half = _Z * math.sqrt(tasks / (tasks - 1) * spread) / len(every)
    return mean - half, mean + half


def decide(history: Sequence[Promotion], results: Mapping[int, Evaluation]) -> int | None:
    """Return the version to promote now; None if things may stay as they are.

    The best score wins, and of equal ones the older version. After a person's decision only versions with later results
    count; and what a person chose without a score stays until its own evaluation has ended.
    """
    current = history[-1] if history else None
    if current and current.version not in results:
        return None
    ranks = {version: (one.score, -version) for version, one in results.items() if one.score is not None}
    floor = current.floor if current else -1
    best = max((version for version in ranks if version > floor), key=lambda version: ranks[version], default=None)
    if best is None or current is None:
        return best
    stays = ranks.get(current.version)
    return best if stays is None or ranks[best] > stays else None


def _why_none(version: int, graded: Sequence[Episode], expected: int) -> str | None:
    if strays := [episode for episode in graded if episode.policy_version not in (None, version)]:
        return f"{strays[0].id} and {len(strays) - 1} more ran on another version ({strays[0].policy_version})"
    if len(graded) < LEAST_SUCCEEDED * expected or not graded:
        return f"{len(graded)} of {expected} episodes succeeded; a score needs {LEAST_SUCCEEDED:.0%}"
    return None


def _wilson(successes: float, n: int) -> Interval:
    share, z2 = successes / n, _Z * _Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)
