"""The task API as a Python object: a typed method for each thing it does."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import httpx
from pydantic import TypeAdapter

from leyden_client.transport import Transport
from leyden_contracts import (
    Episode,
    EpisodeState,
    NewRewards,
    Promotion,
    Purpose,
    RewardVersion,
    RunSpec,
    Task,
    TaskInput,
    Verdict,
    new_run_id,
)
from leyden_contracts.api import (
    AdapterView,
    EpisodeList,
    Lineage,
    RewardVersionHead,
    RunList,
    RunMetrics,
    RunView,
    StartView,
    TrajectoryHead,
    TrajectoryList,
    TrajectoryView,
    Uploaded,
    VersionList,
)
from leyden_contracts.rewards import GRADED

_ADAPTERS = TypeAdapter(list[AdapterView])
ExportFormat = Literal["jsonl", "parquet", "datasets"]
_PAGE = 1000
_HEADS = 100
_EXPORTING_S = 3600.0
"""The API sorts the trajectories before it sends the first of them."""
_STORING_S = 30
_STORED_BYTES_PER_S = 5 * 2**20
"""A slow object store. The API answers when it has written all of an upload."""


class LeydenClient:
    """A client of one task API. Not for use by several threads at once.

    Every method raises ApiError if the API refuses, and ApiUnreachable if it does not answer within `patience_s`.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 30, patience_s: float = 30) -> None:
        self._http = Transport(url, token, timeout_s=timeout_s, patience_s=patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # Runs

    def create_run(self, spec: RunSpec) -> RunView:
        """Create a run; the id is chosen here if `spec` has none, so that a repeated request makes one run."""
        spec = spec if spec.id else spec.model_copy(update={"id": new_run_id()})
        return RunView.model_validate(self._post("/v1/runs", json=spec.model_dump(mode="json")))

    def runs(self) -> Iterator[RunView]:
        """Yield all runs, by id."""
        start: int | None = 0
        while start is not None:
            page = RunList.model_validate(self._get("/v1/runs", start=start, count=100))
            yield from page.runs
            start = page.next

    def run(self, run: str) -> RunView:
        """Return a run and where it stands."""
        return RunView.model_validate(self._get(f"/v1/runs/{run}"))

    def seal(self, run: str) -> RunView:
        """Say that no more training tasks come: the learner uses what there is, and the run finishes."""
        return RunView.model_validate(self._post(f"/v1/runs/{run}/seal"))

    def cancel_run(self, run: str) -> RunView:
        """End a run for good: what waits or runs is cancelled, and nothing more is trained on."""
        return RunView.model_validate(self._post(f"/v1/runs/{run}/cancel"))

    def pause(self, run: str) -> RunView:
        """Let no episode start any more, until `resume`."""
        return RunView.model_validate(self._post(f"/v1/runs/{run}/pause"))

    def resume(self, run: str) -> RunView:
        """Let episodes start again."""
        return RunView.model_validate(self._post(f"/v1/runs/{run}/resume"))

    # The start of a run

    def upload_start(self, run: str, data: Path) -> StartView:
        """Upload what the run's start learns from, a JSONL file: all of it, or, if one line is bad, nothing.

        The same file again is no other; another one is refused.
        """
        response = self._http.send(
            "PUT",
            f"/v1/runs/{run}/start",
            body=lambda: _chunks(data),
            headers={"Content-Type": "application/x-ndjson"},
            answer_s=_STORING_S + data.stat().st_size / _STORED_BYTES_PER_S,
        )
        return StartView.model_validate_json(response.content)

    def start(self, run: str) -> StartView:
        """Say where the run's start stands."""
        return StartView.model_validate(self._get(f"/v1/runs/{run}/start"))

    # Tasks and episodes

    def upload_tasks(
        self,
        run: str,
        tasks: Path | Iterable[TaskInput],
        *,
        purpose: Purpose | Literal["held_out"] = "train",
        samples: int | None = None,
        policy_version: int | None = None,
        key: str | None = None,
    ) -> Uploaded:
        """Upload a JSONL file, or tasks. All of them are accepted, or none.

        Args:
            run: the run's id.
            tasks: path of a JSONL file, which is streamed; or tasks.
            purpose: `train`, or `eval`; `held_out`: the run's `evaluation` runs them on its versions.
            samples: episodes for each task; by default the run's `group_size`, and 1 for evaluation.
            policy_version: the version to evaluate; by default the newest.
            key: makes this upload another than an earlier one of the same content. The same key twice is one upload.
        """
        lines = None if isinstance(tasks, Path) else [f"{task.model_dump_json()}\n".encode() for task in tasks]
        size = tasks.stat().st_size if isinstance(tasks, Path) else sum(map(len, lines or []))
        headers = {"Content-Type": "application/x-ndjson"} | ({"Idempotency-Key": key} if key else {})
        response = self._http.send(
            "POST",
            f"/v1/runs/{run}/tasks",
            params={"purpose": purpose, "samples": samples, "policy_version": policy_version},
            body=lambda: _chunks(tasks) if isinstance(tasks, Path) else iter(lines or []),
            headers=headers,
            answer_s=_STORING_S + size / _STORED_BYTES_PER_S,
        )
        return Uploaded.model_validate_json(response.content)

    def retry_failed(self, run: str) -> list[Uploaded]:
        """Upload the tasks of failed and timed-out episodes again: for training the whole group, else one for one."""
        return [Uploaded.model_validate(one) for one in self._post(f"/v1/runs/{run}/retry")]

    def episodes(
        self, run: str, state: EpisodeState | None = None, purpose: Purpose | None = None, start: int = 0
    ) -> Iterator[Episode]:
        """Yield episodes in order of acceptance. With `state`, those that change state meanwhile may be missed."""
        following: int | None = start
        while following is not None:
            asked = {"state": state, "purpose": purpose, "start": following, "count": _PAGE}
            page = EpisodeList.model_validate(self._get(f"/v1/runs/{run}/episodes", **asked))
            yield from page.episodes
            following = page.next

    def episode(self, run: str, episode: str) -> Episode:
        """Return one episode."""
        return Episode.model_validate(self._get(f"/v1/runs/{run}/episodes/{episode}"))

    def cancel(self, run: str, episode: str) -> Episode:
        """End an episode as cancelled, unless it has ended; return how it ended."""
        return Episode.model_validate(self._post(f"/v1/runs/{run}/episodes/{episode}/cancel"))

    # Versions

    def versions(self, run: str) -> VersionList:
        """Return the run's versions with their scores, where each is served, and which one is promoted."""
        return VersionList.model_validate(self._get(f"/v1/runs/{run}/versions"))

    def lineage(self, run: str, version: int) -> Lineage:
        """Return what made a version: parents, groups and episodes, configuration, files."""
        return Lineage.model_validate(self._get(f"/v1/runs/{run}/versions/{version}"))

    def promote(self, run: str, version: int) -> Promotion:
        """Make a version the one to use."""
        return Promotion.model_validate(self._post(f"/v1/runs/{run}/promote", json={"version": version}))

    def roll_back(self, run: str) -> Promotion:
        """Return to what was promoted before."""
        promotions = self.versions(run).promotions
        # Named, so that a request that is sent twice rolls back once.
        undo = promotions[-1].number if promotions else None
        return Promotion.model_validate(self._post(f"/v1/runs/{run}/rollback", json={"undo": undo}))

    # Results

    def trajectory(self, run: str, episode: str) -> TrajectoryView:
        """Return a succeeded episode's trajectory."""
        return TrajectoryView.model_validate(self._get(f"/v1/runs/{run}/trajectories/{episode}"))

    def trajectories(
        self,
        run: str,
        *,
        purpose: Purpose | None = None,
        verdict: Verdict | None = None,
        group: str | None = None,
        rewards: str = GRADED,
    ) -> Iterator[TrajectoryHead]:
        """Yield stored trajectories without tokens, in order of acceptance; `rewards` names a reward version."""
        for page in self._heads(run, purpose=purpose, verdict=verdict, group=group, rewards=rewards):
            yield from page.trajectories

    def gradable(self, run: str) -> Iterator[tuple[TrajectoryHead, Task]]:
        """Yield stored trajectories with their tasks: what a grader needs."""
        for page in self._heads(run, tasks=True):
            for head in page.trajectories:
                yield head, page.tasks[head.task]

    def export(self, run: str, file: IO[bytes], *, format: ExportFormat = "jsonl", **selection: Any) -> None:
        """Write stored trajectories into `file`, the same bytes each time.

        Args:
            run: the run's id.
            file: that can be sought.
            format: `jsonl`, `parquet`, or `datasets`: a tar of the folder that `datasets.load_dataset` takes.
            selection: `purpose`, `verdict`, `min_reward`, `text_only` (conversations), `rewards` (a reward version).
        """
        path = f"/v1/runs/{run}/trajectories/export"
        self._http.download(path, {"format": format, **selection}, file, _EXPORTING_S)

    def reward_versions(self, run: str) -> list[RewardVersionHead]:
        """Return the run's reward versions, oldest first; what grading made at the time is none of them."""
        return [RewardVersionHead.model_validate(one) for one in self._get(f"/v1/runs/{run}/regrades")]

    def rewards(self, run: str, version: str) -> RewardVersion:
        """Return a reward version with all its lines."""
        return RewardVersion.model_validate(self._get(f"/v1/runs/{run}/regrades/{version}"))

    def add_rewards(self, run: str, rewards: NewRewards) -> RewardVersionHead:
        """Store a reward version; the same one again is no other."""
        response = self._http.send(
            "POST", f"/v1/runs/{run}/regrades", json=rewards.model_dump(mode="json"), answer_s=_STORING_S
        )
        return RewardVersionHead.model_validate_json(response.content)

    def adapters(self, run: str, role: str | None = None) -> list[AdapterView]:
        """Return the stored policy versions, ascending; of the first trained role by name, if no `role` is given."""
        return _ADAPTERS.validate_python(self._get(f"/v1/runs/{run}/adapters", **_role(role)))

    def adapter_file(self, run: str, version: int, name: str, role: str | None = None) -> bytes:
        """Return one file of a policy version, unchecked; `download_adapter` checks hashes. `role`: see `adapters`."""
        return self._http.send("GET", f"/v1/runs/{run}/adapters/{version}/{name}", params=_role(role)).content

    def metrics(self, run: str) -> RunMetrics:
        """Return the run's curves."""
        return RunMetrics.model_validate(self._get(f"/v1/runs/{run}/metrics"))

    def replicas(self) -> list[dict[str, Any]]:
        """Return the live replicas: `id`, `url`, `base_model`, `ready` adapters, `rejected` ones with the reason."""
        found: list[dict[str, Any]] = self._get("/v1/replicas")
        return found

    def events(self, run: str, after: str = "0") -> Iterator[tuple[str, dict[str, str]]]:
        """Yield (id, fields) of the events after `after`, for ever; connects again when the stream breaks."""
        while True:
            try:
                with self._http.stream(f"/v1/runs/{run}/events", {"Last-Event-ID": after}) as response:
                    for after, fields in _events(response.iter_lines()):
                        yield after, fields
            except httpx.TransportError:
                # Whether the API is gone or only the connection: a plain request finds out, with its own patience.
                self.run(run)
            time.sleep(0.2)

    def _heads(self, run: str, **asked: Any) -> Iterator[TrajectoryList]:
        start: int | None = 0
        while start is not None:
            found = self._get(f"/v1/runs/{run}/trajectories", **asked, start=start, count=_HEADS)
            page = TrajectoryList.model_validate(found)
            yield page
            start = page.next

    def _get(self, path: str, **params: Any) -> Any:
        return self._http.send("GET", path, params=params).json()

    def _post(self, path: str, **given: Any) -> Any:
        return self._http.send("POST", path, **given).json()


def _role(role: str | None) -> dict[str, str]:
    return {"role": role} if role else {}


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(65536):
            yield chunk


def _events(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Parse the server-sent events that the task API writes: `id`, `event`, and one line of `data`."""
    event = ""
    for line in lines:
        if line.startswith("id: "):
            event = line[4:]
        elif line.startswith("data: "):
            yield event, json.loads(line[6:])
