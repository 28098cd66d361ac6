"""What the adapter_loader counts."""

from prometheus_client import Counter, Gauge, Histogram

REPLICA_UP = Gauge("leyden_adapter_loader_replica_up", "1 while the replica answers and serves its base model.")
READY = Gauge("leyden_adapter_loader_ready", "Versions that are proved and offered.")
REJECTED = Gauge("leyden_adapter_loader_rejected", "Wanted versions that are withheld.")
ATTEMPTS = Counter("leyden_adapter_loader_attempts", "Attempts to bring a version into service.", ["outcome"])
UNSEEN = Counter(
    "leyden_adapter_loader_unseen",
    "Proofs in which the replica's rounding hid the difference from the parent or the base.",
    ["policy"],
)
RETIRED = Counter("leyden_adapter_loader_retired", "Versions unloaded because no run wants them.")
ROUND_FAILURES = Counter("leyden_adapter_loader_round_failures", "Rounds that the ledger or the disk cut short.")
SECONDS = Histogram(
    "leyden_adapter_loader_seconds",
    "From a version first being wanted to its proof.",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120),
)
