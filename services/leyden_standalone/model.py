"""Which base model to serve."""

from pathlib import Path

import typer

from leyden_agents.calculator.recipe import BASE_MODEL, MODEL_DIR


def default_model(folder: Path | None, name: str | None) -> tuple[Path, str]:
    """Return the model's folder and name; the demo's tiny Llama if none is given. Exits with code 2 on a bad folder."""
    if folder is None:
        return MODEL_DIR, name or BASE_MODEL
    if not (folder / "config.json").is_file():
        typer.secho(f"{folder} holds no model: give a folder with config.json and safetensors", fg="red", err=True)
        raise typer.Exit(2)
    return folder, name or folder.resolve().name.lower()
