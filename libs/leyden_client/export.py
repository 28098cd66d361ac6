"""Exports as files: whole or not there at all, and nothing is overwritten unless that is wanted."""

import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from leyden_client.errors import InputError

_EXPORTED = {"README.md", "train"}
"""What an exported folder holds."""


def write_whole(path: Path, fetch: Callable[[IO[bytes]], None], *, force: bool = False) -> None:
    """Let `fetch` write the file `path`, which is there only when all of it is. Raises InputError if it is taken."""
    _check_free(path, force)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=f".{path.name}-", dir=path.parent) as file:
        fetch(file)
        file.flush()
        os.fsync(file.fileno())
        Path(file.name).chmod(0o644)
        if force:
            spare = Path(f"{file.name}.whole")
            os.link(file.name, spare)
            spare.replace(path)
            return
        try:
            os.link(file.name, path)
        except FileExistsError as error:
            raise _taken(path) from error


def write_folder(path: Path, fetch: Callable[[IO[bytes]], None], *, force: bool = False) -> None:
    """Let `fetch` write a tar, and make the folder `path` of it. Raises InputError if `path` is taken."""
    _check_free(path, force)
    if path.exists() and (not path.is_dir() or {inside.name for inside in path.iterdir()} - _EXPORTED):
        raise InputError(f"{path} is no folder that was exported here: remove it yourself, or choose another")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as room:
        with tempfile.TemporaryFile(dir=room) as file:
            fetch(file)
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                tar.extractall(Path(room) / "new", filter="data")
        if path.exists():
            path.rename(Path(room) / "old")
        (Path(room) / "new").rename(path)


def _check_free(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise _taken(path)


def _taken(path: Path) -> InputError:
    return InputError(f"{path} is there already: choose another name, or overwrite it with --force")
