"""The collector's settings."""

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from leyden_collector.limits import SpanLimits
from leyden_runtime.settings import CommonSettings


class CollectorSettings(CommonSettings):
    """What the collector reads from the environment, as LEYDEN_COLLECTOR_*."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_COLLECTOR_")

    port: int = Field(default=4318, ge=0, le=65535)
    """Of OTLP over HTTP."""
    grpc_port: int = Field(default=4317, ge=0, le=65535)
    """Of OTLP over gRPC; 0 turns it off."""
    flush_ms: float = Field(default=20, ge=0, le=1000)
    """How long spans are gathered into one segment."""
    max_body_bytes: int = Field(default=32 * 2**20, ge=1024)
    """Of one request over HTTP, after decompression; larger ones get 413."""
    max_message_bytes: int = Field(default=8 * 2**20, ge=1024)
    """Of one request over gRPC, after decompression; larger ones get RESOURCE_EXHAUSTED."""
    grpc_readers: int = Field(default=8, ge=1, le=1024)
    """Requests over gRPC that arrive at the same time; others wait, outside this process."""
    max_json_values: int = Field(default=200_000, ge=1)
    """Of one request in JSON: each takes memory many times its size."""
    max_inflight_bytes: int = Field(default=128 * 2**20, ge=1024)
    """Of all requests being answered, after decompression; beyond it requests get 429."""
    read_timeout_s: float = Field(default=10, gt=0)
    """How long a sender may take to send one body."""
    max_spans: int = Field(default=16_384, ge=1)
    """Of one request; beyond it the request gets 413."""
    max_span_bytes: int = Field(default=4 * 2**20, ge=1024)
    """A span beyond this, or one of the next four, is refused and quarantined; its neighbours are kept."""
    max_span_parts: int = Field(default=1024, ge=16)
    """Attributes, events and links of one span together."""
    max_value_bytes: int = Field(default=2 * 2**20, ge=1024)
    """Of one attribute's value. 2 MB hold half a million packed token ids."""
    max_name_bytes: int = Field(default=1024, ge=64)
    """Of a span's name, and of an attribute's."""
    max_resource_bytes: int = Field(default=64 * 2**10, ge=1024)
    """Of a resource, and of a scope."""
    quarantine_span_bytes: int = Field(default=64 * 2**10, ge=0)
    """How much of a refused span is kept."""
    quarantine_run_bytes: int = Field(default=16 * 2**20, ge=0)
    """How much this process quarantines for one run in a minute; what is beyond is only counted."""
    max_segment_bytes: int = Field(default=8 * 2**20, ge=1024)
    """A segment that reaches this is written at once."""
    writers: int = Field(default=8, ge=1, le=64)
    """Segments being written at the same time."""
    store_timeout_s: float = Field(default=10, gt=0)
    """How long spans may wait to be durable before their sender gets 503."""
    retry_after_s: int = Field(default=1, ge=1)
    """What a sender is told with 429 and 503."""
    cache_bytes: int = Field(default=64 * 2**20, ge=0)
    """Of decoded calls kept for assembly."""
    assemblers: int = Field(default=4, ge=1, le=64)
    """Batches of trajectories being written at the same time, each of another run."""
    assembly_lease_s: float = Field(default=10, gt=0)
    """After this, a batch whose collector died is assembled by another one."""
    poll_ms: float = Field(default=50, gt=0)
    """How often runs with recent spans are asked for closed attempts."""
    sweep_s: float = Field(default=1, gt=0)
    """How often all runs are."""

    @model_validator(mode="after")
    def _two_ports(self) -> Self:
        if self.port and self.port == self.grpc_port:
            raise ValueError("port and grpc_port must differ: HTTP and gRPC listen apart")
        return self

    @property
    def span_limits(self) -> SpanLimits:
        """What one span may hold."""
        return SpanLimits(
            span_bytes=self.max_span_bytes,
            parts=self.max_span_parts,
            value_bytes=self.max_value_bytes,
            name_bytes=self.max_name_bytes,
            resource_bytes=self.max_resource_bytes,
        )
