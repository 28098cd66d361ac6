"""The worker's settings."""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from leyden_runtime.settings import CommonSettings


class WorkerSettings(CommonSettings):
    """What the worker reads from the environment, as LEYDEN_WORKER_*."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_WORKER_")

    port: int = Field(default=8103, ge=0, le=65535)
    """Of /healthz and /metrics."""
    name: str = ""
    """Shown as the holder of an attempt. Empty: host name and pid."""
    concurrency: int = Field(default=32, ge=1, le=1000)
    """Attempts at the same time. They mostly wait for the model."""
    lease_s: float = Field(default=5, ge=1)
    """How long an attempt outlives its worker's last sign of life."""
    agent_path: str = "."
    """Folders to import agents and graders from, before all others; separated by `:` as in PYTHONPATH."""
    import_timeout_s: float = Field(default=120, gt=0)
    """How long importing an agent may take."""
    grader_timeout_s: float = Field(default=60, gt=0)
    agent_memory_mb: int | None = Field(default=None, ge=64)
    """Address space that one attempt may use (RLIMIT_AS); None is no limit."""
    max_output_bytes: int = Field(default=8 * 2**20, ge=1024)
    """Largest output of an agent, as JSON."""
    idle_parents: int = Field(default=8, ge=0)
    """Imported agents and graders that are kept though no attempt uses them at the moment."""
    close_retry_s: float = Field(default=60, ge=0)
    """How long the worker tries to report a result while Redis is away."""

    @property
    def agent_folders(self) -> list[Path]:
        """The folders of `agent_path`, absolute."""
        return [Path(part).resolve() for part in self.agent_path.split(os.pathsep) if part]
