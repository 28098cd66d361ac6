"""Reading what people wrote: each fault as a line that says where and what."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from leyden_contracts.task import TaskInput


class BadTask(ValueError):
    """A task that cannot be accepted."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def read_task(raw: bytes | Any) -> TaskInput:
    """Return the task in `raw`: a line of JSON, or a parsed value. Raises BadTask."""
    try:
        parse = TaskInput.model_validate_json if isinstance(raw, bytes) else TaskInput.model_validate
        task = parse(raw)
        # Pydantic reads NaN and 1e999 and would write them as null: another task than the user's.
        json.dumps(task.model_dump(), allow_nan=False)
    except ValidationError as error:
        raise BadTask(fault_lines(error.errors(include_url=False))) from error
    except ValueError as error:
        raise BadTask(["NaN and infinite numbers are not JSON"]) from error
    return task


def fault_lines(faults: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return pydantic's error entries as lines: `algorithm.steps: Extra inputs are not permitted`."""
    lines = []
    for fault in faults:
        where = ".".join(str(part) for part in fault["loc"] if part not in ("body", "query", "path"))
        lines.append(f"{where}: {fault['msg']}" if where else fault["msg"])
    return lines
