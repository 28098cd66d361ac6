"""Commands that other packages bring (`leyden up`, `leyden demo`): entry points of the group `leyden.commands`.

Each entry point is a function with typer's annotations. It is imported when it is called, not before: `leyden --help`
must not wait for torch.
"""

from importlib.metadata import EntryPoint, entry_points

import typer

from leyden_client.errors import InputError

_GROUP = "leyden.commands"
_HELP = {
    "up": "Start everything on this machine, and go on where it stopped.",
    "demo": "Train the calculator agent in minutes, and show the curve.",
}


def add_to(app: typer.Typer) -> None:
    """Add whatever is installed."""
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name, reverse=True):
        _add(app, point)


def _add(app: typer.Typer, point: EntryPoint) -> None:
    def run(context: typer.Context) -> None:
        try:
            function = point.load()
        except ModuleNotFoundError as error:
            raise InputError(f"`leyden {point.name}` needs more: pip install 'leyden[standalone]' ({error})") from error
        inner = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        inner.command(help=_HELP.get(point.name))(function)
        inner(args=context.args, prog_name=f"leyden {point.name}", obj=context.obj)

    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(point.name, help=_HELP.get(point.name), context_settings=settings)(run)
