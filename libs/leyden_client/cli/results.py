"""`leyden episodes`, `adapters`, `adapter`, `metrics`, `events`: what a run does and has done."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from leyden_client.cli.session import AsJson, Run, print_json, session
from leyden_client.download import download_adapter
from leyden_contracts import EpisodeState

Role = Annotated[str | None, typer.Option(help="A trained role; without it, the first by name")]
FIGURES = (
    *("reward_mean", "advantage_abs", "loss", "entropy", "entropy_sampled", "kl", "clip_fraction", "ratio_mean"),
    *("grad_norm", "staleness_mean", "tokens", "seconds"),
)
"""What `leyden metrics` shows unless it is asked for others."""
_adapter = typer.Typer(no_args_is_help=True, help="Download adapters.")


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("episodes")(episodes)
    app.command("adapters")(adapters)
    app.add_typer(_adapter, name="adapter")
    app.command("metrics")(metrics)
    app.command("events")(events)


def episodes(
    context: typer.Context,
    run: Run,
    state: Annotated[EpisodeState | None, typer.Option(help="Only those in this state")] = None,
    evaluate: Annotated[bool, typer.Option("--eval", help="Only evaluation episodes")] = False,
    as_json: AsJson = False,
) -> None:
    """List a run's episodes."""
    here = session(context)
    with here.client() as client:
        found = list(client.episodes(run, state, "eval" if evaluate else None))
    if as_json:
        return print_json([episode.model_dump(mode="json") for episode in found])
    table = Table("episode", "purpose", "state", "attempt", "calls", "version", "reward", "why")
    for one in found:
        reward = "" if one.reward is None else f"{one.reward:.3f}"
        version = "" if one.policy_version is None else str(one.policy_version)
        why = (
            f"{one.reason}: {one.message.strip().splitlines()[-1] if one.message.strip() else ''}" if one.reason else ""
        )
        table.add_row(one.id, one.purpose, one.state, str(one.attempt), str(one.calls), version, reward, why)
    here.console.print(table)
    return None


def adapters(context: typer.Context, run: Run, role: Role = None, as_json: AsJson = False) -> None:
    """List a run's policy versions."""
    here = session(context)
    with here.client() as client:
        found = client.adapters(run, role)
    if as_json:
        return print_json([view.model_dump(mode="json") for view in found])
    table = Table("version", "parent", "groups", "skipped", "reward", "loss", "seconds")
    for view in found:
        figures = [
            f"{view.metrics[name]:.4g}" if name in view.metrics else "" for name in ("reward_mean", "loss", "seconds")
        ]
        table.add_row(str(view.version), str(view.parent), str(view.groups), str(len(view.skipped)), *figures)
    here.console.print(table)
    return None


def metrics(
    context: typer.Context,
    run: Run,
    role: Annotated[str | None, typer.Option(help="Only this trained role")] = None,
    names: Annotated[list[str] | None, typer.Option("--name", help="Only these figures; may be repeated")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what every training step measured, by version and role."""
    here = session(context)
    with here.client() as client:
        roles = [name for name, one in client.run(run).spec.roles.items() if one.trained and role in (None, name)]
        found = [view for name in sorted(roles) for view in client.adapters(run, name)]
    found.sort(key=lambda view: (view.version, view.role))
    if as_json:
        return print_json([{"version": one.version, "role": one.role, **one.metrics} for one in found])
    shown = names or [name for name in FIGURES if any(name in view.metrics for view in found)]
    table = Table("version", "role", *shown)
    for view in found:
        figures = [f"{view.metrics[name]:.4g}" if name in view.metrics else "" for name in shown]
        table.add_row(str(view.version), view.role, *figures)
    here.console.print(table)
    return None


@_adapter.command("download")
def download(
    context: typer.Context,
    run: Run,
    version: Annotated[int, typer.Argument(min=1)],
    folder: Annotated[Path, typer.Argument(help="Made if absent")],
    role: Role = None,
    training_state: Annotated[bool, typer.Option(help="Fetch the optimizer's state too")] = False,
) -> None:
    """Download an adapter in PEFT's format, checked against the hashes in its manifest."""
    with session(context).client() as client:
        for path in download_adapter(client, run, version, folder, role=role, training_state=training_state):
            typer.echo(path)


def events(
    context: typer.Context,
    run: Run,
    after: Annotated[str, typer.Option(help="Id of the last event already seen")] = "0",
) -> None:
    """Print a run's events, past ones first, until Ctrl-C."""
    with session(context).client() as client:
        for event, fields in client.events(run, after):
            typer.echo(f"{event} " + " ".join(f"{name}={value}" for name, value in fields.items()))
