"""What a step measures: for the manifest, and for Prometheus."""

from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

from leyden_contracts import AdapterManifest
from leyden_learner.batch import Batch

VERSION = Gauge("leyden_learner_version", "Newest committed policy version.", ["run"])
REWARD_MEAN = Gauge("leyden_learner_reward_mean", "Mean reward of the newest step's trajectories.", ["run", "role"])
STALENESS_MEAN = Gauge(
    "leyden_learner_staleness_mean", "Mean age in versions of the newest step's data.", ["run", "role"]
)
KL = Gauge("leyden_learner_kl", "KL of the sampling policy to the trained one, nats a token.", ["run", "role"])
ENTROPY = Gauge("leyden_learner_entropy", "Of the policy's distributions, nats a token.", ["run", "role"])
ENTROPY_SAMPLED = Gauge(
    "leyden_learner_entropy_sampled", "Entropy as the sampled tokens tell it, nats a token.", ["run", "role"]
)
LOSS = Gauge("leyden_learner_loss", "What the newest step minimised.", ["run", "role"])
ADVANTAGE_MEAN = Gauge("leyden_learner_advantage_mean", "Mean over the newest step's calls.", ["run", "role"])
ADVANTAGE_STD = Gauge("leyden_learner_advantage_std", "Standard deviation of the same.", ["run", "role"])
ADVANTAGE_ABS = Gauge("leyden_learner_advantage_abs", "Mean size of the same, whatever their sign.", ["run", "role"])
TOKENS_PER_SECOND = Gauge(
    "leyden_learner_tokens_per_second",
    "Response tokens trained on, by the seconds of the newest step.",
    ["run", "role"],
)
CLIP_FRACTION = Gauge("leyden_learner_clip_fraction", "Tokens whose gradient the clip removed.", ["run", "role"])
RATIO_MEAN = Gauge("leyden_learner_ratio_mean", "Mean importance ratio of the newest step.", ["run", "role"])
GRAD_NORM = Gauge("leyden_learner_grad_norm", "Gradient norm before clipping.", ["run", "role"])
VALUE_LOSS = Gauge(
    "leyden_learner_value_loss", "Of the critic before the step, half its squared error.", ["run", "role"]
)
EXPLAINED_VARIANCE = Gauge(
    "leyden_learner_explained_variance", "Share of the returns' variance that the critic foresaw.", ["run", "role"]
)
TRAINED_TOKENS = Counter("leyden_learner_trained_tokens", "Response tokens trained on.", ["run", "role"])
DROPPED_TOKENS = Counter("leyden_learner_dropped_tokens", "Tokens a correction dropped.", ["run", "role", "reason"])
GROUPS_ASKED = Gauge("leyden_learner_groups_asked", "Groups that dynamic sampling asked for, so far.", ["run"])
SIGNAL_SHARE = Gauge(
    "leyden_learner_signal_share", "Share of the newest step's groups that it trained on.", ["run", "role"]
)
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

_GAUGES = {
    "signal_share": SIGNAL_SHARE,
    "reward_mean": REWARD_MEAN,
    "staleness_mean": STALENESS_MEAN,
    "kl": KL,
    "entropy": ENTROPY,
    "entropy_sampled": ENTROPY_SAMPLED,
    "loss": LOSS,
    "advantage_mean": ADVANTAGE_MEAN,
    "advantage_std": ADVANTAGE_STD,
    "advantage_abs": ADVANTAGE_ABS,
    "clip_fraction": CLIP_FRACTION,
    "ratio_mean": RATIO_MEAN,
    "grad_norm": GRAD_NORM,
    "value_loss": VALUE_LOSS,
    "explained_variance": EXPLAINED_VARIANCE,
}
_DROPPED = "dropped_"
"""How a step's metrics count trajectories that may not be trained on; the reason follows."""
_DROPPED_TOKENS = "tokens_"
"""The same, of tokens that a correction dropped."""


def batch_metrics(batch: Batch, role: str, version: int) -> dict[str, float]:
    """Return what the data of a step says before the step; without rollouts, only their number.

    `transitions` are those of `role`, all else is of the whole batch. `success` is the share of rollouts with a reward
    of 1 or more, `signal_share` that of groups that are trained on. `reward_mean`, `success` and `staleness_mean` are
    over all fresh and whole rollouts, those of groups without a signal too.
    """
    count = len(batch.rollouts)
    metrics = {"trajectories": float(count), "trained_episodes": float(len(batch.episodes))}
    metrics |= {"transitions": float(len(batch.of(role))), "tokens": 0.0}
    if batch.groups:
        metrics |= {"groups": float(len(batch.groups)), "signal_share": 1 - len(batch.skipped) / len(batch.groups)}
    metrics |= {f"{_DROPPED}{reason}": float(number) for reason, number in batch.dropped.items()}
    if count:
        rewards = [rollout.trajectory.reward for rollout in batch.rollouts]
        metrics["reward_mean"] = sum(rewards) / count
        metrics["success"] = sum(reward >= 1 for reward in rewards) / count
        metrics["staleness_mean"] = sum(version - rollout.version for rollout in batch.rollouts) / count
    return metrics | _advantages([sample.advantage for sample in batch.of(role)])


def _advantages(found: Sequence[float]) -> dict[str, float]:
    """Return what the advantages of a step's calls are like; their size says how strong its signal is."""
    if not found:
        return {}
    mean = sum(found) / len(found)
    spread = sum((one - mean) ** 2 for one in found) / len(found)
    size = sum(abs(one) for one in found) / len(found)
    return {"advantage_mean": mean, "advantage_std": spread**0.5, "advantage_abs": size}


def observe(manifests: Sequence[AdapterManifest]) -> None:
    """Show a committed step to Prometheus; `manifests` are those of its roles, the last one the lead role's."""
    lead = manifests[-1]
    VERSION.labels(lead.run).set(lead.version)
    STEP_SECONDS.observe(lead.metrics["seconds"])
    for reason in lead.skipped.values():
        SKIPPED_GROUPS.labels(lead.run, reason).inc()
    for name, count in lead.metrics.items():
        if name.startswith(_DROPPED):
            DROPPED.labels(lead.run, name.removeprefix(_DROPPED)).inc(count)
    for manifest in manifests:
        _observe_role(manifest)


def _observe_role(manifest: AdapterManifest) -> None:
    labels, metrics = (manifest.run, manifest.role), manifest.metrics
    for name, gauge in _GAUGES.items():
        if name in metrics:
            gauge.labels(*labels).set(metrics[name])
    TRAINED_TOKENS.labels(*labels).inc(metrics["tokens"])
    if metrics["seconds"] > 0:
        TOKENS_PER_SECOND.labels(*labels).set(metrics["tokens"] / metrics["seconds"])
    for name, count in metrics.items():
        if name.startswith(_DROPPED_TOKENS):
            DROPPED_TOKENS.labels(*labels, name.removeprefix(_DROPPED_TOKENS)).inc(count)
