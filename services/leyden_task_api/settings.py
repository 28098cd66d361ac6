"""The task API's settings: LEYDEN_TASK_API_* in the environment."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from leyden_runtime.settings import CommonSettings


class TaskApiSettings(CommonSettings):
    """See `CommonSettings` for what all services share."""

    model_config = SettingsConfigDict(env_prefix="LEYDEN_TASK_API_", extra="ignore", populate_by_name=True)

    port: int = Field(default=8000, ge=0, le=65535)
    max_upload_bytes: int = Field(default=4 * 2**30, gt=0)
    """One upload of tasks as JSONL. Each needs as much room again in the folder for temporary files (TMPDIR)."""
    max_uploads_at_once: int = Field(default=4, gt=0)
    """Uploads of tasks that one process reads at a time; more are told to come back."""
    upload_idle_s: float = Field(default=60, gt=0)
    """An upload that sends nothing for so long is given up: its place is somebody else's."""
    max_task_bytes: int = Field(default=2**20, gt=0, le=8 * 2**20)
    """One line of JSONL."""
    max_json_bytes: int = Field(default=8 * 2**20, gt=0)
    """Any other request body; it is held in memory."""
    max_episodes_per_upload: int = Field(default=10_000_000, gt=0)
    answer_within_s: float = Field(default=10, gt=0)
    """An answer that Redis or the store holds up for longer becomes a 503."""
    unsafe_redis: bool = False
    """Start even if Redis may lose what it is told (no log, eviction). For trying things out."""
    dispatch_poll_s: float = Field(default=0.05, gt=0)
    rings_ahead: int = Field(default=1000, gt=0)
    """Rings that may wait in the queue for a worker, of all runs together."""
    episodes_ahead: int = Field(default=10_000, gt=0)
    """Episodes of one run and purpose that wait in Redis; the rest of an upload waits in the object store."""
    max_backlog_episodes: int = Field(default=20_000_000, gt=0)
    """Unfinished episodes of one run; an upload beyond that is answered with 429."""
    ring_again_s: float = Field(default=10, gt=0)
    """An episode that nobody has claimed by then is rung for again."""
    reconcile_s: float = Field(default=0.5, gt=0)
    """How often lost attempts are looked for."""
    trace_grace_s: float = Field(default=30, gt=0)
    """How long a closed attempt may wait for its last spans."""
    archive_after_s: float = Field(default=3600, ge=0)
    """An ended run's episodes move from Redis to the object store when nothing has happened for so long."""
    archive_s: float = Field(default=10, gt=0)
    """Pause between looks for such runs."""
    keep_s: float = Field(default=30, gt=0)
    """Pause between looks for archived runs whose stored data is to be merged or deleted (`retention`)."""
    max_exports_at_once: int = Field(default=2, gt=0)
    """Exports that one process makes at a time; more are told to come back. Each needs as much room in the folder for
    temporary files (TMPDIR) as the run's trajectories have."""
    evaluate_s: float = Field(default=1, gt=0)
    """Pause between looks for versions to evaluate and evaluations that have ended."""
    gauges_s: float = Field(default=2, gt=0)
