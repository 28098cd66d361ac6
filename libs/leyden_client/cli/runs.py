"""`leyden run`, `leyden tasks`: runs are made, listed and filled."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from leyden_client.cli import versions
from leyden_client.cli.session import AsJson, Run, print_json, session
from leyden_client.errors import InputError
from leyden_client.files import check_start, read_spec, read_tasks
from leyden_contracts import TERMINAL_STATES, Purpose
from leyden_contracts.api import RunView

_runs = typer.Typer(no_args_is_help=True, help="Create, list, show and seal runs.")
_tasks = typer.Typer(no_args_is_help=True, help="Upload tasks.")


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(_runs, name="run")
    versions.add_to(_runs)
    app.add_typer(_tasks, name="tasks")


@_runs.command("create")
def create(
    context: typer.Context,
    spec: Annotated[Path, typer.Argument(help="Run specification: YAML or JSON")],
    start: Annotated[Path | None, typer.Option(help="What its `start` learns from, JSON lines")] = None,
) -> None:
    """Create a run and print its id."""
    chosen = read_spec(spec)
    if start:
        check_start(chosen, start)
    with session(context).client() as client:
        run = str(client.create_run(chosen).spec.id)
        if start:
            client.upload_start(run, start)
        typer.echo(run)


@_runs.command("list")
def list_runs(context: typer.Context, as_json: AsJson = False) -> None:
    """List all runs."""
    here = session(context)
    with here.client() as client:
        runs = list(client.runs())
    if as_json:
        return print_json([view.model_dump(mode="json") for view in runs])
    table = Table("run", "state", "agent", "base model", "version", "episodes ended", "of")
    for view in runs:
        counts = view.summary.counts
        ended = sum(n for name, n in counts.items() if name.partition(":")[2] in TERMINAL_STATES)
        version, spec = view.summary.version_published, view.spec
        of = str(sum(counts.values()))
        table.add_row(spec.id, view.summary.state, spec.agent, spec.base_model, str(version), str(ended), of)
    here.console.print(table)
    return None


@_runs.command("show")
def show(context: typer.Context, run: Run) -> None:
    """Print a run's specification and where it stands, as JSON."""
    with session(context).client() as client:
        _print(client.run(run))


@_runs.command("start")
def show_start(context: typer.Context, run: Run) -> None:
    """Print where a run's start stands, as JSON."""
    with session(context).client() as client:
        print_json(client.start(run).model_dump(mode="json"))


@_runs.command("seal")
def seal(context: typer.Context, run: Run) -> None:
    """Say that no more training tasks come: the run finishes when the learner has used what there is."""
    with session(context).client() as client:
        _print(client.seal(run))


@_runs.command("cancel")
def cancel(context: typer.Context, run: Run) -> None:
    """End a run for good: what waits or runs is cancelled, and nothing more is trained on."""
    with session(context).client() as client:
        _print(client.cancel_run(run))


@_runs.command("pause")
def pause(context: typer.Context, run: Run) -> None:
    """Let no episode start any more. What runs goes on."""
    with session(context).client() as client:
        _print(client.pause(run))


@_runs.command("resume")
def resume(context: typer.Context, run: Run) -> None:
    """Let the episodes of a paused run start again."""
    with session(context).client() as client:
        _print(client.resume(run))


@_runs.command("retry")
def retry(context: typer.Context, run: Run) -> None:
    """Upload the tasks of failed and timed-out episodes again; those episodes stay as they ended."""
    with session(context).client() as client:
        done = client.retry_failed(run)
    typer.echo(f"{sum(one.groups for one in done)} tasks, {sum(one.episodes for one in done)} episodes")


@_tasks.command("upload")
def upload(
    context: typer.Context,
    run: Run,
    file: Annotated[Path, typer.Argument(help="Tasks, one JSON object a line")],
    evaluate: Annotated[bool, typer.Option("--eval", help="For evaluation: never trained on")] = False,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="For the run's own evaluations of its versions: no episodes now")
    ] = False,
    samples: Annotated[int | None, typer.Option(min=1, help="Episodes a task")] = None,
    policy_version: Annotated[int | None, typer.Option(min=0, help="Version to evaluate; default: newest")] = None,
    key: Annotated[str | None, typer.Option(help="Makes this upload another than an earlier one of the file")] = None,
) -> None:
    """Upload a file of tasks: all of it, or, if one line is bad, nothing."""
    read_tasks(file)
    if policy_version is not None and not evaluate:
        raise InputError("--policy-version is for evaluations: add --eval")
    if held_out and evaluate:
        raise InputError("--held-out tasks are evaluated by the run itself, --eval ones once, now: choose one")
    purpose: Purpose | Literal["held_out"] = "held_out" if held_out else "eval" if evaluate else "train"
    with session(context).client() as client:
        done = client.upload_tasks(run, file, purpose=purpose, samples=samples, policy_version=policy_version, key=key)
    other = "" if held_out else "; use --key to upload the same tasks again"
    again = f" (they were there already{other})" if done.repeated else ""
    typer.echo(f"{done.groups} tasks, {'held out' if held_out else f'{done.episodes} episodes'}{again}")


def _print(view: RunView) -> None:
    print_json(view.model_dump(mode="json"))
