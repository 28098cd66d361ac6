"""Files that people write: run specifications and tasks. Checked here first, with the line that is wrong."""

import json
from pathlib import Path

import yaml
from pydantic import ValidationError

from leyden_client.errors import InputError
from leyden_contracts import RunSpec, TaskInput
from leyden_contracts.reading import BadTask, fault_lines, read_task

_MOST_FAULTS = 20


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
    tasks: list[TaskInput] = []
    faults: list[str] = []
    for number, line in enumerate(_read(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip() or len(faults) >= _MOST_FAULTS:
            continue
        try:
            tasks.append(read_task(line))
        except BadTask as error:
            faults += [f"line {number}: {fault}" for fault in error.faults]
    if faults:
        raise InputError(f"{path} has bad lines; nothing was uploaded", faults[:_MOST_FAULTS])
    if not tasks:
        raise InputError(f"{path} holds no task")
    return tasks


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
