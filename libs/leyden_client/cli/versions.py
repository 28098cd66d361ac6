"""`leyden run versions`, `promote`, `rollback`: which version of a run is to be used."""

from typing import Annotated

import typer
from rich.table import Table

from leyden_client.cli.session import AsJson, Run, print_json, session
from leyden_contracts import Evaluation
from leyden_contracts.api import VersionView


def add_to(runs: typer.Typer) -> None:
    """Add these commands to `leyden run`."""
    runs.command("versions")(versions)
    runs.command("promote")(promote)
    runs.command("rollback")(rollback)


def versions(
    context: typer.Context,
    run: Run,
    lineage: Annotated[int | None, typer.Option(min=0, help="Print what made this version, as JSON")] = None,
    as_json: AsJson = False,
) -> None:
    """List a run's versions: scores on the held-out tasks, where each is served, which one is promoted."""
    here = session(context)
    with here.client() as client:
        if lineage is not None:
            return print_json(client.lineage(run, lineage).model_dump(mode="json"))
        found = client.versions(run)
    if as_json:
        return print_json(found.model_dump(mode="json"))
    table = Table("version", "promoted", "score", "95 %", "episodes", "ready on", "withheld")
    for view in found.versions:
        table.add_row(str(view.version), "yes" if view.promoted else "", *_figures(view), *_places(view))
    here.console.print(table)
    return None


def promote(context: typer.Context, run: Run, version: Annotated[int, typer.Argument(min=0)]) -> None:
    """Make a version the one that `leyden/RUN:best` stands for."""
    with session(context).client() as client:
        done = client.promote(run, version)
    typer.echo(f"run {run}: version {done.version} is promoted (number {done.number})")


def rollback(context: typer.Context, run: Run) -> None:
    """Return to the version that was promoted before."""
    with session(context).client() as client:
        done = client.roll_back(run)
    typer.echo(f"run {run}: back to version {done.version} (number {done.number})")


def _figures(view: VersionView) -> tuple[str, str, str]:
    result = view.evaluation
    if result is None:
        return "under way" if view.evaluating else "", "", ""
    score = f"{result.score:.3f}" if result.score is not None else "none"
    between = f"{result.interval[0]:.3f} to {result.interval[1]:.3f}" if result.interval else ""
    return score, between, _episodes(result)


def _episodes(result: Evaluation) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in result.counts.items())
    return f"{counts}: {result.reason}" if result.reason else counts


def _places(view: VersionView) -> tuple[str, str]:
    return ", ".join(view.ready), ", ".join(f"{replica}: {why}" for replica, why in view.withheld.items())
