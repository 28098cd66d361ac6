"""The collector's settings."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from leyden_runtime.settings import CommonSettings


class CollectorSettings(CommonSettings):
    """What the collector reads from the environment, as LEYDEN_COLLECTOR_*."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_COLLECTOR_")

    port: int = Field(default=4318, ge=0, le=65535)
    flush_ms: float = Field(default=20, ge=0, le=1000)
    """How long spans are gathered into one segment."""
    max_body_bytes: int = Field(default=32 * 2**20, ge=1024)
    """Of one request, after decompression; larger ones get 413."""
    max_inflight_bytes: int = Field(default=128 * 2**20, ge=1024)
    """Of all requests being answered, after decompression; beyond it requests get 429."""
    read_timeout_s: float = Field(default=10, gt=0)
    """How long a sender may take to send one body."""
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
