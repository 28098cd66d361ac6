"""What the collector counts."""

from prometheus_client import Counter, Gauge, Histogram

SPANS_ACCEPTED = Counter("leyden_collector_spans_accepted", "Spans stored and answered.")
SPANS_REFUSED = Counter("leyden_collector_spans_refused", "Spans refused by partial success.", ["reason"])
REQUESTS_REFUSED = Counter("leyden_collector_requests_refused", "Requests answered with an error.", ["status"])
INFLIGHT_BYTES = Gauge("leyden_collector_inflight_bytes", "Bytes of requests that are not answered yet.")

SEGMENTS = Counter("leyden_collector_segments", "Segments written.")
SEGMENT_BYTES = Counter("leyden_collector_segment_bytes", "Bytes of segments written.")
QUARANTINED = Counter("leyden_collector_quarantined", "Spans written to quarantine.", ["kind"])
QUARANTINE_DROPPED = Counter(
    "leyden_collector_quarantine_dropped", "Refused spans that found no room in quarantine.", ["kind"]
)
WRITE_SECONDS = Histogram(
    "leyden_collector_write_seconds",
    "From the end of gathering to durable and noted in the ledger.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
WRITE_FAILURES = Counter("leyden_collector_write_failures", "Batches that could not be made durable.")

TRAJECTORIES = Counter("leyden_collector_trajectories", "Closed attempts handled.", ["outcome"])
ASSEMBLY_SECONDS = Histogram(
    "leyden_collector_assembly_seconds",
    "From finding closed attempts to their trajectories being stored and settled.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
LATE_AGENTS = Counter(
    "leyden_collector_late_agents", "Attempts whose agents' own spans were stored too late for their trajectory."
)
LEFT_OUT = Counter("leyden_collector_agent_spans_left_out", "Agents' own spans beyond what one trajectory looks at.")
SEGMENT_READS = Counter("leyden_collector_segment_reads", "Segments asked for by assembly.", ["source"])
