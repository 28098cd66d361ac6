"""The key layout: where each kind of object lives. Nothing else builds a key."""

import re

from leyden_storage.base import ObjectStore

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}")


def _join(*parts: str) -> str:
    for part in parts:
        if not _PART.fullmatch(part) or ".." in part:
            raise ValueError(f"{part!r} cannot be part of an object key: use letters, digits, '.', '_' and '-'")
    return "/".join(parts)


def run_key(run: str) -> str:
    """The run's specification."""
    return _join("runs", run, "run.json")


def start_key(run: str) -> str:
    """The object whose existence commits the uploaded data of the run's start."""
    return _join("runs", run, "start", "data.json")


def start_part_key(run: str, folder: str, part: int) -> str:
    """One part of that data, as JSON lines. `folder` is of the content."""
    return _join("runs", run, "start", folder, f"{part:05d}.jsonl")


def start_refusal_key(run: str) -> str:
    """Why a learner could not make the run's start; the last one."""
    return _join("runs", run, "start", "refused.json")


def uploads_prefix(run: str) -> str:
    """Where a run's uploads of tasks are: their manifests, and folders of their parts."""
    return _join("runs", run, "tasks") + "/"


def upload_key(run: str, batch: str) -> str:
    """The object whose existence commits an upload."""
    return _join("runs", run, "tasks", f"{batch}.json")


def task_part_key(run: str, folder: str, part: int) -> str:
    """One part of an upload, a JSON line for each task. `folder` is of the content: see `uploads.part_folder`."""
    return _join("runs", run, "tasks", folder, f"{part:05d}.jsonl")


def sealed_key(run: str) -> str:
    """Its existence says that the run takes no more training tasks."""
    return _join("runs", run, "sealed.json")


def cancelled_key(run: str) -> str:
    """Its existence says that the run was ended by a person."""
    return _join("runs", run, "cancelled.json")


def archive_key(run: str, number: int) -> str:
    """The parts of the run's `number`-th archive of episodes, from 1; the newest holds all."""
    return _join("runs", run, "archive", f"index-{number:06d}.json")


def archive_part_key(run: str, first: int) -> str:
    """Ended episodes, from the `first`-th on in order of acceptance."""
    return _join("runs", run, "archive", f"{first:09d}.json")


def promotion_key(run: str, number: int) -> str:
    """The run's `number`-th promotion, from 1."""
    return _join("runs", run, "promotions", f"{number:06d}.json")


def evaluations_prefix(run: str) -> str:
    """Where the results of a run's evaluations are."""
    return _join("runs", run, "evaluations") + "/"


def evaluation_key(run: str, version: int) -> str:
    """How a version did on the run's held-out tasks."""
    return _join("runs", run, "evaluations", f"v{version:06d}.json")


def recovery_key(run: str, number: int) -> str:
    """The `number`-th rebuilding of the run's ledger, from 1."""
    return _join("runs", run, "recoveries", f"{number:06d}.json")


def segments_prefix(run: str) -> str:
    """Where a run's raw spans are."""
    return _join("runs", run, "segments") + "/"


def segment_key(run: str, segment: str) -> str:
    """One durable write of raw spans (OTLP protobuf)."""
    return _join("runs", run, "segments", f"{segment}.otlp")


def merged_segments_prefix(run: str) -> str:
    """How the keys of a run's merged segments begin."""
    return segments_prefix(run) + "compact-"


def merged_segments_key(run: str, number: int) -> str:
    """The run's `number`-th object of merged segments, from 1."""
    return _join("runs", run, "segments", f"compact-{number:06d}.otlp.zst")


def ended_key(run: str) -> str:
    """When the run ended: what its retention counts from."""
    return _join("runs", run, "ended.json")


def expired_key(run: str, number: int) -> str:
    """The `number`-th record of trajectories that were deleted by retention, from 1; the newest holds all."""
    return _join("runs", run, "expired", f"{number:06d}.json")


def expired_part_key(run: str, folder: str, part: int) -> str:
    """A part of such a record: the episodes whose trajectories are gone. `folder` is of the content."""
    return _join("runs", run, "expired", folder, f"{part:05d}.json")


def rewards_prefix(run: str) -> str:
    """Where a run's later reward versions are."""
    return _join("runs", run, "rewards") + "/"


def rewards_key(run: str, version: str) -> str:
    """One reward version."""
    return _join("runs", run, "rewards", f"{version}.json")


def quarantine_prefix(run: str) -> str:
    """Where a run's refused spans are."""
    return _join("runs", run, "quarantine") + "/"


def quarantine_key(run: str, name: str) -> str:
    """Spans that were refused, with the reason."""
    return _join("runs", run, "quarantine", name)


def trajectories_prefix(run: str) -> str:
    """Where a run's trajectories are."""
    return _join("runs", run, "trajectories") + "/"


def batch_name(epoch: int, number: int) -> str:
    """The name of the run's `number`-th batch of trajectories, from 1, since its `epoch`-th recovery."""
    return f"{epoch:04d}-{number:09d}"


def trajectory_batch_key(run: str, batch: str) -> str:
    """A batch of trajectories, by its name."""
    return _join("runs", run, "trajectories", f"{batch}.parquet")


def adapter_prefix(run: str, role: str, version: int) -> str:
    """The folder of one checkpoint; ends with a slash."""
    return _join("runs", run, "adapters", role, f"v{version}") + "/"


def manifest_key(run: str, role: str, version: int) -> str:
    """The object whose existence commits a checkpoint."""
    return adapter_prefix(run, role, version) + "manifest.json"


def adapter_versions(store: ObjectStore, run: str, role: str) -> list[int]:
    """Return the committed versions of `role`, ascending."""
    prefix = _join("runs", run, "adapters", role) + "/v"
    keys = (key.removeprefix(prefix) for key in store.list(prefix) if key.endswith("/manifest.json"))
    return sorted(int(key.split("/")[0]) for key in keys)
