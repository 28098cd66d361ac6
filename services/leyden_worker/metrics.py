"""What the worker counts."""

from prometheus_client import Counter, Gauge, Histogram

ATTEMPTS = Counter("leyden_worker_attempts", "Attempts that ended here.", ["outcome", "reason"])
RUNNING = Gauge("leyden_worker_running", "Attempts that run now.")
CAPACITY = Gauge("leyden_worker_capacity", "Attempts that may run at the same time.")
ATTEMPT_SECONDS = Histogram(
    "leyden_worker_attempt_seconds",
    "From claim to close.",
    ["outcome"],
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
RINGS_IN_VAIN = Counter("leyden_worker_rings_in_vain", "Rings for episodes that somebody else had claimed.")
