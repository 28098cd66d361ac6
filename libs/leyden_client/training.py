"""`leyden train` as functions: from an agent, a grader and tasks to a better adapter, with the proof beside it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from leyden_client.client import LeydenClient
from leyden_client.download import download_adapter
from leyden_client.evaluate import EvalResult, evaluate
from leyden_client.watch import Progress, watch
from leyden_contracts import RunSpec, TaskInput

_EPISODES_AT_ONCE = 50_000


@dataclass(frozen=True)
class TrainResult:
    """What training came to."""

    run: str
    final: Progress
    version: int
    """The last published version; 0 if none was."""
    before: EvalResult | None
    """Of version 0; None without evaluation tasks."""
    after: EvalResult | None
    """Of the last version."""
    adapter: Path | None
    """Folder of the last version's files; None if none was published."""


def train(
    client: LeydenClient,
    spec: RunSpec,
    tasks: Sequence[TaskInput],
    steps: int,
    *,
    eval_tasks: Sequence[TaskInput] = (),
    eval_samples: int = 1,
    start: Path | None = None,
    folder: Path = Path("leyden-adapters"),
    console: Console | None = None,
) -> TrainResult:
    """Train `steps` versions: create the run, evaluate, upload, watch, evaluate again, download the last version.

    `start` is what the start of `spec` learns from, where that is a file; it makes one version more.

    Raises ClientError and its kinds (ApiError, ApiUnreachable, RunStalled).
    """
    run = str(client.create_run(spec).spec.id)
    say = console.print if console else _silent
    say(f"run [bold]{run}[/]: {spec.agent} on {spec.base_model}, graded by {spec.grader}")
    if start:
        client.upload_start(run, start)
    before = _evaluated(client, run, eval_tasks, 0, eval_samples, console, "before")
    groups = steps * spec.algorithm.groups_per_step
    upload_passes(client, run, tasks, groups, spec)
    client.seal(run)
    final = watch(client, run, groups, console=console)
    version = final.summary.version_published
    after = _evaluated(client, run, eval_tasks, version, eval_samples, console, "after")
    adapter = folder / run if version else None
    if adapter:
        download_adapter(client, run, version, adapter)
    return TrainResult(run, final, version, before, after, adapter)


def upload_passes(client: LeydenClient, run: str, tasks: Sequence[TaskInput], groups: int, spec: RunSpec) -> None:
    """Upload `groups` training groups: the tasks again and again, each pass in another order (by the run's seed)."""
    order: list[TaskInput] = []
    number = 0
    while len(order) < groups:
        order += random.Random(f"{spec.seed}-{number}").sample(list(tasks), len(tasks))
        number += 1
    at_once = max(1, _EPISODES_AT_ONCE // spec.group_size)
    for start in range(0, groups, at_once):
        client.upload_tasks(run, order[start : min(groups, start + at_once)], key=f"train-{start}")


def result_table(results: Sequence[EvalResult]) -> Table:
    """Return a table of evaluations: a row for each version, a column for each tag."""
    table = Table("version", "mean reward", "graded", "failed", title="Evaluation")
    tags = sorted({tag for result in results for tag in result.by_tag})
    for tag in tags:
        table.add_column(tag)
    for result in results:
        shares = [
            f"{result.by_tag[tag][0]:.3f} ({result.by_tag[tag][1]})" if tag in result.by_tag else "-" for tag in tags
        ]
        mean = f"{result.success:.3f} ± {result.stderr:.3f}"
        table.add_row(str(result.version), mean, str(result.n), str(result.failed), *shares)
    return table


def _share(result: EvalResult, tag: str) -> str:
    mean, n = result.by_tag.get(tag, (0.0, 0))
    return f"{mean:.3f} ({n})" if n else "-"


def _evaluated(
    client: LeydenClient,
    run: str,
    tasks: Sequence[TaskInput],
    version: int,
    samples: int,
    console: Console | None,
    key: str,
) -> EvalResult | None:
    if not tasks:
        return None
    if not console:
        return evaluate(client, run, tasks, version, samples, key=key)
    with console.status(f"evaluating version {version}") as status:

        def show(ended: int, of: int) -> None:
            status.update(f"evaluating version {version}: {ended} of {of} episodes")

        result = evaluate(client, run, tasks, version, samples, key=key, on_progress=show)
    console.print(f"version {version}: mean reward {result.success:.3f} over {result.n} held-out episodes")
    return result


def _silent(_: str) -> None:
    """Say nothing."""
