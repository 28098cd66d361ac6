"""`python -m leyden_worker.warm_parent KIND MODULE:FUNCTION`: a process that has imported an agent and forks attempts.

A fresh interpreter for each attempt costs a second; a fork costs milliseconds. This process has a single thread, so
that forking is safe, and it never runs an agent itself, so that it is always there to enforce deadlines. It imports
little: `threading`, `logging` and `random` each do something in every child, which costs more than the fork itself.

stdin: one request a line, JSON: the fields of `child.Request`, or `{"kill": id}`.
stdout: one answer a line, JSON. First `{"ready": true, "threads": n}` or `{"refused": why}`; then `{"id", "pid"}` for
a child that was born, and for one that ended a line that says how many bytes of its report follow.
"""

import argparse
import contextlib
import gc
import inspect
import json
import os
import selectors
import signal
import sys
from pathlib import Path
from typing import Any

from leyden_agents.contract import AgentNotFound, Function, grade, load_function, run_agent
from leyden_agents.warm import warm_sdk
from leyden_worker import child, kernel
from leyden_worker.early_import import import_early, import_modules
from leyden_worker.nursery import Ended, Nursery

_READ_BYTES = 65536


def main() -> None:
    """Import the function, then fork it until stdin ends or SIGTERM comes. Both happen when the worker dies."""
    arguments = _arguments()
    kernel.die_with_parent(arguments.parent, signal.SIGTERM)
    kernel.hide()
    requests, answers = _take_standard_streams()
    sys.path[:0] = arguments.path
    try:
        function = _load(arguments, requests, answers)
    except AgentNotFound as error:
        _answer(answers, {"refused": str(error)})
        return
    # An SDK that does not take the warm-up only starts colder.
    with contextlib.suppress(Exception):
        warm_sdk()
    # What has been imported stays shared with the children: the collector would touch, and so copy, all of it.
    gc.collect()
    gc.freeze()
    kernel.adopt_orphans()
    _Server(function, requests, answers).serve()


class _Server:
    def __init__(self, function: Function, requests: int, answers: int) -> None:
        self._requests = requests
        self._answers = answers
        self._partial = bytearray()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._nursery = Nursery(function, self._selector, self._ended)
        self._wakeup, self._alarm = os.pipe()
        own = {requests, answers, self._wakeup, self._alarm}
        self._private = frozenset(own | {getattr(self._selector, "fileno", lambda: requests)()})

    def serve(self) -> None:
        """Fork and bury until stdin ends or SIGTERM comes; then kill every child."""
        for descriptor in (self._requests, self._wakeup, self._alarm):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._wakeup, selectors.EVENT_READ, lambda: os.read(self._wakeup, _READ_BYTES))
        self._selector.register(self._requests, selectors.EVENT_READ, self._read)
        _answer(self._answers, {"ready": True, "threads": _threads()})
        try:
            while not self._stopping:
                for key, _ in self._selector.select(self._nursery.patience()):
                    key.data()
                self._nursery.tend()
        finally:
            self._nursery.close()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _read(self) -> None:
        data = os.read(self._requests, _READ_BYTES)
        self._stopping = self._stopping or not data
        self._partial += data
        if b"\n" not in data:
            return
        *lines, self._partial = self._partial.split(b"\n")
        for line in lines:
            self._serve(json.loads(line))

    def _serve(self, message: dict[str, Any]) -> None:
        if "kill" in message:
            self._nursery.kill(message["kill"])
            return
        pid = self._nursery.fork(child.Request(**message), self._private)
        if pid is not None:
            _answer(self._answers, {"id": message["id"], "pid": pid})

    def _ended(self, end: Ended) -> None:
        line = {"id": end.id, "how": end.how, "code": end.code, "printed": end.printed, "bytes": len(end.report)}
        _answer(self._answers, line, end.report)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["agent", "grader"])
    parser.add_argument("reference")
    parser.add_argument("--parent", type=int, required=True, help="pid of the worker")
    parser.add_argument("--path", action="append", default=[], help="folder to import from, before all others")
    parser.add_argument("--watch", action="append", default=[], help="variable that differs between attempts")
    parser.add_argument("--modules", type=Path, help="file of modules to import instead of the agent")
    return parser.parse_args()


def _take_standard_streams() -> tuple[int, int]:
    """Return stdin and stdout for our own use; what an agent's import reads is empty, what it prints goes to stderr."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return requests, answers


def _load(arguments: argparse.Namespace, requests: int, answers: int) -> Function:
    if arguments.kind == "grader":
        function = _warm(load_function(arguments.reference))
        return lambda task, output: grade(function, task, output)._asdict()
    if arguments.modules is not None:
        import_modules(arguments.modules.read_text().split())
        arguments.modules.unlink()
        return lambda value: run_agent(load_function(arguments.reference), value)
    agent, instead = import_early(arguments.reference, arguments.watch)
    if instead:
        _start_over(instead, requests, answers)
    _warm(agent)
    return lambda value: run_agent(agent, value)


def _start_over(modules: list[str], requests: int, answers: int) -> None:
    """Become a fresh interpreter that has imported `modules`, but not yet the agent."""
    import tempfile

    descriptor, file = tempfile.mkstemp(prefix="leyden-modules-")
    with open(descriptor, "w") as output:  # noqa: PTH123 - a descriptor, not a path
        output.write("\n".join(modules))
    os.dup2(requests, 0)
    os.dup2(answers, 1)
    command = [sys.executable, *sys.orig_argv[1:], "--modules", file]
    os.execv(command[0], command)  # noqa: S606 - our own command line


def _threads() -> int:
    threading = sys.modules.get("threading")
    return 1 if threading is None else threading.active_count()


def _warm(function: Function) -> Function:
    if inspect.iscoroutinefunction(function):
        # Every child will run it: import once what that takes.
        import asyncio  # noqa: F401
    return function


def _answer(descriptor: int, line: dict[str, Any], report: bytes = b"") -> None:
    view = memoryview(json.dumps(line).encode() + b"\n" + report)
    # Nobody reads: the worker is gone, and the end of stdin will say so too.
    with contextlib.suppress(BrokenPipeError):
        while view:
            view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
