"""Which base model to serve."""

from pathlib import Path

import typer

import leyden_agents


def default_model(folder: Path | None, name: str | None) -> tuple[Path, str]:
    """Return the model's folder and name; the demo's tiny Llama if none is given. Exits with code 2 on a bad folder."""
    if folder is None:
        return Path(leyden_agents.__file__).parent / "calculator" / "model", name or "calculator-tiny"
    if not (folder / "config.json").is_file():
        typer.secho(f"{folder} holds no model: give a folder with config.json and safetensors", fg="red", err=True)
        raise typer.Exit(2)
    return folder, name or folder.resolve().name.lower()
