"""An upload of tasks: checked line by line, spooled to a file. Memory holds one line and the tasks' places.

The spooled object is JSONL. Its first line says what was asked for (`{"upload": {...}}`), so that a lost ledger can
be rebuilt from it; every other line is a stored `Task`.
"""

import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

from pydantic_core import from_json

from leyden_contracts import Task, TaskUpload
from leyden_contracts.reading import BadTask, read_task

MAX_LINE_BYTES = 2**20
MAX_FAULTS = 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SpooledTask:
    """Where one task is in the spooled object."""

    id: str
    offset: int
    """In bytes."""
    length: int
    """Without the line's end."""


class Spool:
    """The tasks of one upload, and what is wrong with it. A context manager: closing removes the file."""

    def __init__(self, asked: TaskUpload) -> None:
        self.tasks: list[SpooledTask] = []
        self.faults: list[str] = []
        """The first MAX_FAULTS of them."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._hash = hashlib.sha256()
        self._size = 0
        self._write({"upload": asked.model_dump(mode="json")})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def full_of_faults(self) -> bool:
        """Whether it is useless to look at more."""
        return len(self.faults) >= MAX_FAULTS

    @property
    def digest(self) -> str:
        """Hex sha256 of the object."""
        return self._hash.hexdigest()

    def content(self) -> bytes:
        """Return the object."""
        self._file.seek(0)
        return self._file.read()

    def add_line(self, number: int, line: bytes) -> None:
        """Check and spool one line of JSONL; blank ones are skipped. `number` counts from 1."""
        if len(line) > MAX_LINE_BYTES:
            self.fault(f"line {number}: longer than {MAX_LINE_BYTES} bytes")
        elif line.strip():
            self._add(f"line {number}", line)

    def add_document(self, body: bytes) -> None:
        """Check and spool a JSON document: one task, or a list of them."""
        try:
            document = from_json(body)
        except ValueError as error:
            return self.fault(f"not JSON: {error}")
        for number, item in enumerate(document if isinstance(document, list) else [document], start=1):
            if self.full_of_faults:
                return None
            self._add(f"task {number}", item)

    def fault(self, line: str) -> None:
        """Note that something is wrong."""
        if not self.full_of_faults:
            self.faults.append(line)

    def _add(self, where: str, raw: Any) -> None:
        try:
            task = read_task(raw)
        except BadTask as error:
            for line in error.faults:
                self.fault(f"{where}: {line}")
            return
        if not self.faults:
            stored = Task.of(task)
            offset, length = self._write(stored.model_dump(mode="json"))
            self.tasks.append(SpooledTask(stored.id, offset, length))

    def _write(self, value: dict[str, Any]) -> tuple[int, int]:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        offset = self._size
        for part in (line, b"\n"):
            self._file.write(part)
            self._hash.update(part)
            self._size += len(part)
        return offset, len(line)


async def spool_lines(chunks: AsyncIterator[bytes], spool: Spool) -> None:
    """Cut a stream into lines and add each. Once `spool` is full of faults, the rest is read and dropped."""
    number, pending = 1, b""
    async for chunk in chunks:
        if spool.full_of_faults:
            continue
        if number == 1 and not pending:
            chunk = chunk.removeprefix(_BOM)
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            spool.add_line(number, pending + line)
            number, pending = number + 1, b""
        # One byte over the limit is enough to know; more would let one endless line fill the memory.
        pending = (pending + tail)[: MAX_LINE_BYTES + 1]
    spool.add_line(number, pending)
