"""The `leyden` command."""

from leyden_client.cli.app import app, main

__all__ = ["app", "main"]
