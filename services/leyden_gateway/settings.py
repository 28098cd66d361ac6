"""The gateway's settings."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from leyden_gateway.outside import Provider
from leyden_runtime.settings import CommonSettings


class GatewaySettings(CommonSettings):
    """Read from LEYDEN_GATEWAY_*, besides the settings common to all services. Seconds and bytes."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_GATEWAY_")

    port: int = Field(default=8100, ge=0, le=65535)
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)
    """Largest request body; a bigger one is refused with 413."""
    replica_wait_s: float = Field(default=60, ge=0)
    """How long a call waits for a replica that serves its version, or for a failed one to come back."""
    replica_refresh_s: float = Field(default=0.05, gt=0)
    """How old the list of replicas may be."""
    upstream_timeout_s: float = Field(default=600, gt=0)
    """Silence of a replica after which the call ends with 504."""
    span_batch: int = Field(default=200, ge=1)
    span_delay_s: float = Field(default=0.05, ge=0)
    """How long a span waits for others to share its request to the collector."""
    span_queue: int = Field(default=10_000, ge=1)
    """Spans held while the collector is away; then new calls get 503."""
    span_queue_bytes: int = Field(default=128 * 2**20, ge=1024)
    max_calls: int = Field(default=10_000, ge=1)
    """Calls under way at once; one more gets 503."""
    max_calls_of_a_run: int = Field(default=4_000, ge=1)
    """The same for one run, with 429, so that no run takes everything."""
    providers: dict[str, Provider] = {}
    """Outside OpenAI-compatible providers by name, as JSON: `{"acme": {"url": "https://…/v1", "api_key": "…"}}`."""
    drain_s: float = Field(default=60, ge=0)
    """How long a stopping gateway waits for calls in flight, and then for the collector."""
