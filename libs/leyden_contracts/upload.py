"""A stored upload of tasks: the manifest whose existence says that every part of it is there."""

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId
from leyden_contracts.task import TaskUpload


class StoredUpload(Message):
    """The last object written of an upload. Its parts are JSONL, a stored `Task` a line (see `task_line`)."""

    batch: ObjectId
    """Names the upload: 24 hex digits, of the client's key or else of the content; the held-out tasks and their
    evaluations have fixed names."""
    asked: TaskUpload
    """With its defaults filled in."""
    digest: str
    """Hex sha256 of `asked` and every line of every part. An evaluation has that of the held-out tasks: it shares their
    parts."""
    part_lines: list[int]
    """How many tasks each part holds, in order."""
    created: float
    """Seconds since the epoch, by the clock of the task API that wrote it."""

    @property
    def groups(self) -> int:
        """How many tasks, and so groups, the upload has."""
        return sum(self.part_lines)
