"""How many uploads or exports one process has in hand: each takes CPU, a temporary file, and some memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from leyden_task_api.problems import ProblemError

# The rest of the refused body is on its way: only a closed connection stops it.
_HEADERS = {"Retry-After": "2", "Connection": "close"}


class Places:
    """A fixed number of places. There is no queue: whoever finds none is told to come back."""

    def __init__(self, count: int, what: str = "uploads are being read") -> None:
        self._what = what
        self._free = count
        self._count = count

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place for the length of the block. Raises ProblemError (429) if there is none."""
        if not self._free:
            detail = f"{self._count} {self._what} already; send this one again in a moment"
            raise ProblemError(429, detail, headers=_HEADERS)
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
