"""The adapter_loader's settings."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator
from pydantic_settings import SettingsConfigDict

from leyden_runtime.settings import CommonSettings


class AdapterLoaderSettings(CommonSettings):
    """What the adapter_loader reads from the environment, as LEYDEN_ADAPTER_LOADER_*."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_ADAPTER_LOADER_")

    port: int = Field(default=8105, ge=0, le=65535)
    replica_url: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$")]
    """How the loader and the gateways reach the replica: `http://host:port`, without `/v1`."""
    replica_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Unique in the deployment, and the same after a restart."""
    base_model: Annotated[str, StringConstraints(min_length=1)]
    """The name under which the replica serves its base model; only runs on it are served."""
    cache_dir: Path
    """Absolute. Adapters' files go to `{cache_dir}/{replica_id}`; the replica must see them under the same path."""
    poll_s: float = Field(default=0.1, gt=0)
    """How often the replica and the ledger are looked at."""
    runs_s: float = Field(default=1, gt=0)
    """How often the list of runs is read, and ended runs are asked what they want."""
    beat_ttl_s: float = Field(default=5, gt=0)
    """After so long without a word from this loader its replica gets no more calls."""
    replica_timeout_s: float = Field(default=3, gt=0)
    """A replica that does not list its models in this time is down."""
    load_timeout_s: float = Field(default=120, gt=0)
    """Of one load, unload or probe."""
    probe_tolerance: float = Field(default=1e-3, gt=0)
    """How far rounding may move one logprob; for a replica in bfloat16 about 0.2."""
    retire_grace_s: float = Field(default=2, ge=0)
    """From un-ready to unload: longer than gateways remember who is ready."""
    files_grace_s: float = Field(default=60, ge=0)
    """From unload to the files' deletion: longer than a call may last."""
    retry_s: float = Field(default=0.5, gt=0)
    """Before the first retry of a version that was withheld; doubles each time."""
    retry_most_s: float = Field(default=30, gt=0)

    @field_validator("cache_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("must be an absolute path: the replica opens the same path")
        return value
