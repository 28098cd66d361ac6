"""What every command works with."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from leyden_client.client import LeydenClient
from leyden_client.connection import Connection, find_connection


@dataclass
class Session:
    """How to reach the parts, and where to print."""

    api_url: str | None
    api_token: str | None
    data_dir: Path
    console: Console

    @property
    def connection(self) -> Connection:
        """Where the parts are. Raises InputError."""
        return find_connection(self.api_url, self.api_token, self.data_dir)

    def client(self) -> LeydenClient:
        """Return a client. Raises InputError."""
        return self.connection.client()


def session(context: typer.Context) -> Session:
    """Return the session that the root command made."""
    found: Session = context.obj
    return found


def print_json(value: Any) -> None:
    """Print `value` as JSON that other programs can read: nothing is coloured or wrapped."""
    typer.echo(json.dumps(value, indent=2))


Run = Annotated[str, typer.Argument(help="The run's id", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON")]
