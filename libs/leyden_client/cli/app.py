"""The command's root: how to reach the API, and how errors are shown. Each other file here is a family of commands."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from leyden_client.cli import operate, plugins, results, runs, train, trajectories
from leyden_client.cli.session import Session
from leyden_client.connection import DATA_DIR
from leyden_client.errors import ClientError


class Guarded(TyperGroup):
    """A group of commands that says what went wrong in a line or two."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what the user can mend is said without a traceback."""
        try:
            return super().invoke(ctx)
        except ClientError as error:
            print(f"leyden: {error}", file=sys.stderr)
            for line in error.lines:
                print(f"  {line}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Train any LLM agent with reinforcement learning.",
)


@app.callback()
def _root(
    context: typer.Context,
    api_url: Annotated[str | None, typer.Option(envvar="LEYDEN_API_URL", help="Of the task API")] = None,
    api_token: Annotated[str | None, typer.Option(envvar="LEYDEN_API_TOKEN", help="Made by `leyden token`")] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="LEYDEN_DATA_DIR", help="Where `leyden up` keeps its files")
    ] = DATA_DIR,
) -> None:
    context.obj = Session(api_url, api_token, data_dir, Console())


for part in (plugins, train, runs, results, trajectories, operate):
    part.add_to(app)


def main() -> None:
    """Run the command; the process's exit code is 0, 1 (it went wrong) or 2 (bad input)."""
    app(prog_name="leyden")
