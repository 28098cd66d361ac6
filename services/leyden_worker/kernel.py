"""What the worker asks of Linux beyond POSIX, so that no process outlives its owner. Elsewhere these do nothing."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection

_SET_DEATH_SIGNAL = 1
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
if _libc is not None:
    _libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Have the kernel send `number` to this process when `parent` dies; at once if it is gone already."""
    _prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, a daemon that left its session included."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def hide(hidden: bool = True) -> None:
    """Keep other processes of the same user, agents for instance, from reading this one's memory and environment."""
    _prctl(_SET_DUMPABLE, int(not hidden))


def children() -> set[int]:
    """Return the pids of this process's children, adopted ones included."""
    found: set[int] = set()
    # Plain calls: a warm parent asks after each attempt.
    for thread in os.listdir("/proc/self/task") if sys.platform == "linux" else ():  # noqa: PTH208
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children", "rb") as file:  # noqa: PTH123
            found.update(map(int, file.read().split()))
    return found


def end_strays(known: Collection[int], suspects: set[int]) -> set[int]:
    """Kill the adopted orphans among this process's children, and wait for those that have ended.

    Args:
        known: the children that are no orphans.
        suspects: what this function returned last time. A child is killed the second time that it is unknown, so that
            one that has just been started is safe.
    """
    strays = children() - set(known)
    for pid in strays & suspects:
        kill_group(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return strays


def kill_group(leader: int) -> None:
    """Send SIGKILL to `leader` and all of its process group. Whoever is gone already is no error."""
    for kill in (os.killpg, os.kill):
        try:
            kill(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _prctl(option: int, value: int) -> None:
    if _libc is not None and _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")
