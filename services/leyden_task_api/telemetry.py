"""The task API's metrics: its own requests, and the state of every run."""

from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram

from leyden_contracts import Evaluation, FailureReason
from leyden_ledger import RunSummary

REQUESTS = Counter("leyden_task_api_requests", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram("leyden_task_api_request_seconds", "Time to the start of the answer", ["route"])
RUNG = Counter("leyden_task_api_rung", "Episodes rung for")
EXPIRED = Counter("leyden_task_api_expired", "Attempts ended because a lease ran out or spans never came")
MERGED = Counter("leyden_task_api_merged_segments", "Segments merged into larger objects")
MERGED_BYTES = Counter("leyden_task_api_merged_bytes", "Bytes of segments merged into larger objects")
DELETED = Counter("leyden_task_api_deleted_objects", "Objects deleted by retention", ["kind"])
LOOP_FAILURES = Counter("leyden_task_api_loop_failures", "Rounds of a loop that failed", ["loop"])

EPISODES = Gauge("leyden_run_episodes", "Episodes by state", ["run", "purpose", "state"])
GROUPS = Gauge("leyden_run_groups", "Groups that have come this far", ["run", "stage"])
VERSION = Gauge("leyden_run_version", "Newest policy version", ["run", "stage"])
FAILURES = Gauge("leyden_run_failed_attempts", "Failed attempts so far, by reason", ["run", "reason"])
REWARD = Gauge("leyden_run_train_reward", "Mean reward of graded training episodes so far", ["run"])
EVAL = Gauge("leyden_run_eval_reward", "Mean reward of graded evaluation episodes", ["run", "version"])

PROMOTED = Gauge("leyden_run_promoted_version", "Promoted policy version", ["run"])
SCORE = Gauge("leyden_run_evaluation_score", "Score on the held-out tasks: `promoted`, `newest`", ["run", "which"])


def show(run: str, summary: RunSummary) -> None:
    """Set the gauges of one run."""
    for name, count in summary.counts.items():
        EPISODES.labels(run, *name.split(":")).set(count)
    for stage in ("accepted", "released", "finished", "consumed"):
        GROUPS.labels(run, stage).set(getattr(summary, f"groups_{stage}"))
    VERSION.labels(run, "published").set(summary.version_published)
    VERSION.labels(run, "ready").set(summary.version_ready)
    if summary.promoted is not None:
        PROMOTED.labels(run).set(summary.promoted)
    # Also the reasons that have not occurred: a chart of zeros is not a chart without data.
    for reason in FailureReason:
        FAILURES.labels(run, reason).set(summary.failures.get(reason, 0))
    for series, (total, episodes) in _graded(summary.rewards).items():
        purpose, _, version = series.partition(":")
        gauge = EVAL.labels(run, version) if purpose == "eval" else REWARD.labels(run)
        gauge.set(total / episodes)


def show_scores(run: str, promoted: int | None, results: Mapping[int, Evaluation]) -> None:
    """Set the gauges of a run's evaluations; what has no score shows none."""
    scores = {version: result.score for version, result in results.items() if result.score is not None}
    for which, version in (("promoted", promoted), ("newest", max(scores, default=None))):
        if version in scores:
            SCORE.labels(run, which).set(scores[version])
        elif (run, which) in SCORE._metrics:
            SCORE.remove(run, which)


def forget(runs: Iterable[str]) -> None:
    """Drop the gauges of `runs`: a server that runs for months sees many."""
    gone = set(runs)
    for gauge in (EPISODES, GROUPS, VERSION, FAILURES, REWARD, EVAL, PROMOTED, SCORE):
        for labels in [labels for labels in gauge._metrics if labels[0] in gone]:
            gauge.remove(*labels)


def _graded(rewards: Mapping[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    return {series: pair for series, pair in rewards.items() if pair[1]}
