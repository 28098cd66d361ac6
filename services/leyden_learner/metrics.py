"""What a step measures: for the manifest, and for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

from leyden_contracts import AdapterManifest
from leyden_learner.batch import Batch

VERSION = Gauge("leyden_learner_version", "Newest committed policy version.", ["run"])
REWARD_MEAN = Gauge("leyden_learner_reward_mean", "Mean reward of the newest step's trajectories.", ["run"])
STALENESS_MEAN = Gauge("leyden_learner_staleness_mean", "Mean age in versions of the newest step's data.", ["run"])
KL = Gauge("leyden_learner_kl", "KL of the sampling policy to the trained one, nats a token.", ["run"])
GRAD_NORM = Gauge("leyden_learner_grad_norm", "Gradient norm before clipping.", ["run"])
TRAINED_TOKENS = Counter("leyden_learner_trained_tokens", "Response tokens trained on.", ["run"])
SKIPPED_GROUPS = Counter("leyden_learner_skipped_groups", "Groups that trained nothing.", ["run", "reason"])
DROPPED = Counter(
    "leyden_learner_dropped", "Trajectories that may not be trained on: text_only, stale, ...", ["run", "reason"]
)
FAILURES = Counter("leyden_learner_failures", "Times a run could not go on, by exception.", ["run", "kind"])
STEP_SECONDS = Histogram(
    "leyden_learner_step_seconds",
    "Forward, backward and optimizer of one step.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)

_DROPPED = "dropped_"
"""How a manifest's metrics count trajectories that may not be trained on; the reason follows."""
_GAUGES = {"reward_mean": REWARD_MEAN, "staleness_mean": STALENESS_MEAN, "kl": KL, "grad_norm": GRAD_NORM}


def batch_metrics(batch: Batch, version: int) -> dict[str, float]:
    """Return what the data of a step says before the step; without rollouts, only their number.

    `success` is the share of rollouts with a reward of 1 or more. `reward_mean`, `success` and `staleness_mean` are
    over all fresh and whole rollouts, those of groups without a signal too.
    """
    count = len(batch.rollouts)
    metrics = {"trajectories": float(count), "trained_episodes": float(len(batch.episodes))}
    metrics |= {"transitions": float(len(batch.samples)), "tokens": 0.0}
    metrics |= {f"{_DROPPED}{reason}": float(number) for reason, number in batch.dropped.items()}
    if count:
        rewards = [rollout.trajectory.reward for rollout in batch.rollouts]
        metrics["reward_mean"] = sum(rewards) / count
        metrics["success"] = sum(reward >= 1 for reward in rewards) / count
        metrics["staleness_mean"] = sum(version - rollout.version for rollout in batch.rollouts) / count
    return metrics


def observe(manifest: AdapterManifest) -> None:
    """Show a committed step to Prometheus."""
    run, metrics = manifest.run, manifest.metrics
    VERSION.labels(run).set(manifest.version)
    for name, gauge in _GAUGES.items():
        if name in metrics:
            gauge.labels(run).set(metrics[name])
    TRAINED_TOKENS.labels(run).inc(metrics["tokens"])
    STEP_SECONDS.observe(metrics["seconds"])
    for name in metrics:
        if name.startswith(_DROPPED):
            DROPPED.labels(run, name.removeprefix(_DROPPED)).inc(metrics[name])
    for reason in manifest.skipped.values():
        SKIPPED_GROUPS.labels(run, reason).inc()
