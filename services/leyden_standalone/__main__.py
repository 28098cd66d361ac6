"""`python -m leyden_standalone` is `leyden up`."""

import typer

from leyden_standalone.up import command

typer.run(command)
