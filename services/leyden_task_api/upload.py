"""An upload of tasks on its way in: checked line by line, spooled to a temporary file, read back as parts.

Memory holds a line, what is not yet written (a MiB), and where each part ends. Nothing leaves the spool before the
whole body has been checked: a broken line accepts nothing.
"""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

from pydantic_core import from_json

from leyden_contracts.base import Message
from leyden_contracts.reading import BadTask
from leyden_contracts.task_line import task_line
from leyden_storage.uploads import MAX_PART_BYTES, MAX_PART_LINES
from leyden_task_api.problems import ProblemError

MAX_FAULTS = 20
_WRITE_BYTES = 2**20
_BOM = b"\xef\xbb\xbf"


class Spool:
    """The tasks of one upload, and what is wrong with it. A context manager: closing removes the file."""

    def __init__(
        self, asked: Message, max_task_bytes: int = 2**20, to_line: Callable[[bytes | Any], bytes] = task_line
    ) -> None:
        """Begin.

        Args:
            asked: what the lines are for; part of the digest.
            max_task_bytes: of a line.
            to_line: returns a line as it is stored, or raises BadTask.
        """
        self.faults: list[str] = []
        """The first MAX_FAULTS of them."""
        self.part_lines: list[int] = []
        """Tasks in each part."""
        self._part_bytes: list[int] = []
        self._max_task_bytes = max_task_bytes
        self._to_line = to_line
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._hash = hashlib.sha256(asked.model_dump_json().encode() + b"\n")
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk: what it could not write is not missed any more
            self._file.close()

    @property
    def groups(self) -> int:
        """How many tasks there are."""
        return sum(self.part_lines)

    @property
    def full_of_faults(self) -> bool:
        """Whether it is useless to look at more."""
        return len(self.faults) >= MAX_FAULTS

    @property
    def must_write(self) -> bool:
        """Whether so much is in memory that `write` should be called."""
        return self._unwritten_bytes >= _WRITE_BYTES

    @property
    def longest_line(self) -> int:
        """Bytes of a line of which more need not be kept: it is too long."""
        return self._max_task_bytes + len(_BOM) + 1

    def add_line(self, number: int, line: bytes) -> None:
        """Check and spool one line of JSONL; blank ones are skipped. `number` counts from 1."""
        if number == 1:
            line = line.removeprefix(_BOM)
        if len(line) > self._max_task_bytes:
            self.fault(f"line {number}: longer than {self._max_task_bytes} bytes")
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
            if self.must_write:
                self.write()

    def fault(self, line: str) -> None:
        """Note that something is wrong."""
        if not self.full_of_faults:
            self.faults.append(line)

    def write(self) -> None:
        """Move what is in memory to the file. Blocks. Raises ProblemError when the disk is full."""
        data, self._unwritten, self._unwritten_bytes = b"".join(self._unwritten), [], 0
        self._hash.update(data)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise ProblemError(507, f"there is no room on disk for this upload: {error.strerror}") from error

    def digest(self) -> str:
        """Return the hex sha256 of the question and all stored lines."""
        self.write()
        return self._hash.hexdigest()

    def parts(self) -> Iterator[bytes]:
        """Yield the content of each part. Blocks."""
        self.write()
        self._file.seek(0)
        for size in self._part_bytes:
            yield self._file.read(size)

    def _add(self, where: str, raw: Any) -> None:
        try:
            line = self._to_line(raw)
        except BadTask as error:
            for fault in error.faults:
                self.fault(f"{where}: {fault}")
            return
        if len(line) >= MAX_PART_BYTES:
            self.fault(f"{where}: longer than {MAX_PART_BYTES} bytes when stored")
        elif not self.faults:
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        size = len(line) + 1
        if not self.part_lines or self.part_lines[-1] >= MAX_PART_LINES or self._part_bytes[-1] + size > MAX_PART_BYTES:
            self.part_lines.append(0)
            self._part_bytes.append(0)
        self.part_lines[-1] += 1
        self._part_bytes[-1] += size
        self._unwritten += (line, b"\n")
        self._unwritten_bytes += size


async def spool_lines(chunks: AsyncIterator[bytes], spool: Spool) -> None:
    """Cut a stream into lines and add each. Once `spool` is full of faults, the rest is read and dropped."""
    number, pending = 1, b""
    async for chunk in chunks:
        if spool.full_of_faults:
            continue
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            spool.add_line(number, pending + line)
            number, pending = number + 1, b""
        # One byte over the limit is enough to know; more would let one endless line fill the memory.
        pending = (pending + tail)[: spool.longest_line]
        if spool.must_write:
            await asyncio.to_thread(spool.write)
    spool.add_line(number, pending)
