"""Forks children and sees them off: their deadlines, what they print, what they report, and what they leave behind."""

import contextlib
import os
import selectors
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leyden_worker import child, kernel

TAIL_BYTES = 8192
"""How much of what a child printed is kept: its end."""
_READ_BYTES = 65536
_LAST_READS = 32


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it left."""

    id: int
    how: str
    """`exited`, `signalled`, `timeout`, `killed` (on request), or `unborn` (it could not be forked)."""
    code: int
    """Exit code or signal number; errno for `unborn`."""
    printed: str
    report: bytes
    """JSON, unless the child died before it had written all of it."""


@dataclass
class _Child:
    request: child.Request
    pid: int
    report: int
    output: int
    deadline: float
    killed: str | None = None
    tail: bytearray = field(default_factory=bytearray)


class Nursery:
    """The children of this process. Single-threaded: the owner calls `tend` whenever something may have happened."""

    def __init__(
        self, function: Callable[..., Any], selector: selectors.BaseSelector, ended: Callable[[Ended], None]
    ) -> None:
        self._function = function
        self._selector = selector
        self._ended = ended
        self._children: dict[int, _Child] = {}
        # What the agent's import started belongs to this process; every other unknown child is some agent's orphan.
        self._own = kernel.children()

    def fork(self, request: child.Request, private: frozenset[int]) -> int | None:
        """Start a child and return its pid; None if that is not possible. `private`: what it must not keep open."""
        report = _memory_file()
        output, theirs = os.pipe()
        private |= {fd for sibling in self._children.values() for fd in (sibling.report, sibling.output)}
        ends = child.Ends(os.getpid(), report, theirs, private | {output})
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in (report, output, theirs):
                os.close(descriptor)
            self._ended(Ended(request.id, "unborn", error.errno or 0, os.strerror(error.errno or 0), b""))
            return None
        if pid == 0:
            child.run(self._function, request, ends)
        os.close(theirs)
        os.set_blocking(output, False)
        born = _Child(request, pid, report, output, time.monotonic() + request.timeout_s)
        self._children[pid] = born
        self._selector.register(output, selectors.EVENT_READ, lambda: self._listen(born))
        return pid

    def kill(self, number: int, why: str = "killed") -> None:
        """Kill the child of request `number` and its process group, if it still runs."""
        for born in self._children.values():
            if born.request.id == number and born.killed is None:
                born.killed = why
                kernel.kill_group(born.pid)

    def patience(self) -> float | None:
        """Return the seconds until the next deadline."""
        waiting = [born.deadline for born in self._children.values() if born.killed is None]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def tend(self) -> None:
        """Bury the dead, kill what is late, and what an ended child has left running."""
        now = time.monotonic()
        for born in list(self._children.values()):
            if born.deadline <= now:
                self.kill(born.request.id, "timeout")
        reaped = False
        while (status := _zombie()) is not None:
            reaped = True
            born_here = self._children.pop(status.si_pid, None)
            if born_here is not None:
                # Before the pid is given up: after that, its group could be somebody else's.
                kernel.kill_group(status.si_pid)
            os.waitpid(status.si_pid, 0)
            if born_here is not None:
                self._bury(born_here, status)
        if reaped:
            self._kill_strays()

    def close(self) -> None:
        """Kill every child, and wait for them."""
        for born in list(self._children.values()):
            self.kill(born.request.id)
        end = time.monotonic() + 5
        while (self._children or kernel.children() - self._own) and time.monotonic() < end:
            self.tend()
            self._kill_strays()
            time.sleep(0.002)

    def _kill_strays(self) -> None:
        # A living child adopts its own orphans, so an unknown child of ours belongs to one that has ended.
        for pid in kernel.children() - self._own - self._children.keys():
            kernel.kill_group(pid)

    def _listen(self, born: _Child) -> None:
        if self._read(born) == 0:
            self._selector.unregister(born.output)

    def _read(self, born: _Child) -> int | None:
        """Keep the end of what was printed; return how much there was, 0 at the end, None for nothing yet."""
        try:
            data = os.read(born.output, _READ_BYTES)
        except BlockingIOError:
            return None
        born.tail += data
        del born.tail[:-TAIL_BYTES]
        return len(data)

    def _bury(self, born: _Child, status: Any) -> None:
        # Bounded: a stray, which is killed only after this, may print on.
        for _ in range(_LAST_READS):
            if not self._read(born):
                break
        with contextlib.suppress(KeyError):
            self._selector.unregister(born.output)
        os.close(born.output)
        report = _content(born.report)
        os.close(born.report)
        how = born.killed or ("exited" if status.si_code == os.CLD_EXITED else "signalled")
        self._ended(Ended(born.request.id, how, status.si_status, born.tail.decode(errors="replace"), report))


def _zombie() -> Any:
    """Return the status of a child that has ended and leave it there: its pid stays its own until `waitpid`."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts = []
    while part := os.read(descriptor, 2**20):
        parts.append(part)
    return b"".join(parts)


def _memory_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("report", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
