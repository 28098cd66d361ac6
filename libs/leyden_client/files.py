"""Files that people write: run specifications and tasks. Checked here first, with the line that is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from leyden_client.errors import InputError
from leyden_contracts import AdapterStart, RunSpec, TaskInput
from leyden_contracts.reading import BadTask, fault_lines, read_task
from leyden_contracts.start_line import start_line

_MOST_FAULTS = 20
Read = TypeVar("Read")


def read_spec(path: Path) -> RunSpec:
    """Read a run specification from YAML or JSON. Raises InputError."""
    try:
        text = _read(path)
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        return RunSpec.model_validate(content)
    except (yaml.YAMLError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML or JSON: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path} is no run specification", fault_lines(error.errors(include_url=False))) from error


def read_tasks(path: Path) -> list[TaskInput]:
    """Read tasks from a JSONL file. Raises InputError, which names the bad lines."""
    tasks = _read_lines(path, read_task)
    if not tasks:
        raise InputError(f"{path} holds no task")
    return tasks


def check_start(spec: RunSpec, path: Path) -> None:
    """Check what the start of `spec` is to learn from. Raises InputError, which names the bad lines."""
    start = spec.start
    if start is None or isinstance(start, AdapterStart) or start.run is not None:
        raise InputError("this run has no start that learns from a file: say `start: {kind: sft}` or `{kind: dpo}`")
    kind = start.kind
    if not _read_lines(path, lambda line: bool(start_line(line, kind, spec.trained_roles))):
        raise InputError(f"{path} holds nothing to learn from")


def _read_lines(path: Path, read: Callable[[bytes], Read]) -> list[Read]:
    found: list[Read] = []
    faults: list[str] = []
    for number, line in enumerate(_read(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip() or len(faults) >= _MOST_FAULTS:
            continue
        try:
            found.append(read(line))
        except BadTask as error:
            faults += [f"line {number}: {fault}" for fault in error.faults]
    if faults:
        raise InputError(f"{path} has bad lines; nothing was uploaded", faults[:_MOST_FAULTS])
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
