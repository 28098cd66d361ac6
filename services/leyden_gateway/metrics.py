"""What the gateway counts."""

from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter("leyden_gateway_calls", "Calls by how they ended: `ok`, or the error's code", ["outcome"])
SECONDS = Histogram(
    "leyden_gateway_call_seconds",
    "From request to reply",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
REPLICA_FAILURES = Counter(
    "leyden_gateway_replica_failures", "Tries that a replica failed, before any byte left", ["replica", "kind"]
)
IN_FLIGHT = Gauge("leyden_gateway_calls_in_flight", "Calls under way")
QUEUE = Gauge("leyden_gateway_span_queue", "Spans that wait for the collector")
SPANS = Counter("leyden_gateway_spans", "Spans by fate: `exported`, `rejected` or `failed`", ["outcome"])
EXPORT_RETRIES = Counter("leyden_gateway_span_export_retries", "Requests to the collector that must be repeated")
