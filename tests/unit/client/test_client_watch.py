"""What a person sees of a run, and when watching gives up."""

import io
from typing import Any

import pytest
from rich.console import Console

from leyden_client.errors import RunStalled
from leyden_client.watch import Progress, Watcher, render, stall_reason, watch
from leyden_contracts import RunSpec
from leyden_contracts.api import AdapterView, RunCounters, RunMetrics, RunView, StartView

SPEC = RunSpec(id="mine", base_model="tiny", agent="a:b", grader="a:c")
REPLICA = {"id": "one", "url": "http://r", "base_model": "tiny", "ready": [], "rejected": {}}


def counters(**changes: Any) -> RunCounters:
    groups = {f"groups_{stage}": 0 for stage in ("accepted", "released", "finished", "consumed")}
    start = {"state": "sealed", "counts": {}, "failures": {}, "rewards": {}, "version_published": 0, "version_ready": 0}
    return RunCounters.model_validate({**start, **groups, **changes})


def version(number: int, reward: float) -> AdapterView:
    return AdapterView(
        role="policy",
        version=number,
        parent=number - 1,
        files={},
        groups=1,
        skipped={},
        metrics={"reward_mean": reward},
        created=0,
    )


class Api:
    """Answers with one prepared summary after the other; the last one again and again."""

    def __init__(
        self, *summaries: RunCounters, replicas: list[dict] | None = None, start: StartView | None = None
    ) -> None:
        self.summaries = list(summaries)
        self.started = start
        self.listed = [REPLICA] if replicas is None else replicas
        self.asked_metrics = 0

    def run(self, run: str) -> RunView:
        summary = self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]
        begun = {"start": {"kind": "sft"}} if self.started else {}
        return RunView(spec=RunSpec.model_validate(SPEC.model_dump() | begun), summary=summary)

    def start(self, run: str) -> StartView:
        assert self.started
        return self.started

    def metrics(self, run: str) -> RunMetrics:
        self.asked_metrics += 1
        return RunMetrics(train=None, evals={}, versions=[version(1, 0.25)])

    def replicas(self) -> list[dict]:
        return self.listed


def test_watching_ends_when_the_run_is_finished() -> None:
    api = Api(counters(groups_finished=1), counters(groups_finished=3), counters(state="finished", groups_finished=4))
    seen: list[Progress] = []
    last = watch(api, "mine", 4, on_progress=seen.append, poll_s=0.02)  # type: ignore[arg-type]
    assert last.finished and [look.summary.groups_finished for look in seen] == [1, 3, 4]
    assert seen[0].seconds_left is None
    assert seen[1].seconds_left == pytest.approx(0.01, abs=0.02)
    assert api.asked_metrics == 1


def test_curves_are_asked_for_when_a_version_appears() -> None:
    api = Api(counters(), counters(), counters(version_published=1), counters(version_published=1))
    watcher = Watcher(api, "mine", 4)  # type: ignore[arg-type]
    for _ in range(4):
        watcher.look()
    assert api.asked_metrics == 2


@pytest.mark.parametrize(
    ("replicas", "summary", "reason"),
    [
        ([], {}, "no replica serves the base model 'tiny' (live ones serve: none at all)"),
        ([{**REPLICA, "base_model": "other"}], {}, "live ones serve: other"),
        (
            [{**REPLICA, "rejected": {"mine--policy--v1": "hash differs"}}],
            {"version_published": 1},
            "mine--policy--v1 at one: hash differs",
        ),
        ([REPLICA], {"counts": {"train:queued": 7}}, "7 episodes wait and no worker takes them"),
        ([REPLICA], {"counts": {"train:queued": 7, "train:running": 1}}, None),
    ],
)
def test_a_run_that_waits_for_a_person_says_for_what(replicas: list, summary: dict, reason: str | None) -> None:
    api = Api(counters(**summary), replicas=replicas)
    progress = Progress("mine", api.run("mine").summary, 4, [], None, 60)
    found = stall_reason(api, progress)  # type: ignore[arg-type]
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize(
    ("start", "version", "reason"),
    [
        (StartView(state="waiting_for_data"), 0, "its start waits for data: PUT /v1/runs/mine/start"),
        (StartView(state="refused", reason="no chat template"), 0, "refused its start: no chat template"),
        (StartView(state="under_way"), 0, None),
        (StartView(state="done"), 1, "7 episodes wait"),
    ],
)
def test_a_run_whose_start_waits_for_a_person_says_for_what(start: StartView, version: int, reason: str | None) -> None:
    api = Api(counters(counts={"train:queued": 7}, version_published=version), start=start)
    progress = Progress("mine", api.run("mine").summary, 4, [], None, 60)
    found = stall_reason(api, progress)  # type: ignore[arg-type]
    assert found is None if reason is None else reason in (found or "")


def test_watching_gives_up_only_for_a_reason() -> None:
    with pytest.raises(RunStalled, match="no replica serves"):
        watch(Api(counters(), replicas=[]), "mine", 4, poll_s=0.01, stall_s=0.05)  # type: ignore[arg-type]


def test_a_look_is_drawn() -> None:
    summary = counters(
        counts={"train:succeeded": 10, "train:queued": 6, "eval:succeeded": 99},
        failures={"timeout": 2},
        version_published=3,
        version_ready=2,
    )
    console = Console(width=100, record=True)
    versions = [version(1, 0.2), version(2, 0.9)]
    console.print(render(Progress("mine", summary, 4, versions, 75.2, 0)))
    text = console.export_text()
    for part in ("10 of 16", "2 (3 loading)", "1 min 15 s", "0.90", "timeout 2"):
        assert part in text


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_gets_a_line_for_each_version_and_a_terminal_a_picture(terminal: bool) -> None:
    steps = [counters(version_published=n, version_ready=n) for n in (0, 0, 1, 1)]
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    watch(Api(*steps, counters(state="finished", version_published=1)), "mine", 4, console=console, poll_s=0)  # type: ignore[arg-type]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    if terminal:
        assert "policy version" in text
    else:
        assert [row.split(":")[0] for row in text.splitlines()] == ["version 0", "version 1"]
