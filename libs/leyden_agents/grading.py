"""A grader in a process of its own, with a time limit: for scoring outputs that are stored already.

The process reads a line of JSON for each output and answers with a line. It sees none of Leyden's settings, so no token
either, and imports the grader from the current folder and PYTHONPATH.
"""

import contextlib
import hashlib
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from leyden_agents.contract import AgentNotFound, Function, Grade, GraderError, grade, load_function

_IMPORT_S = 300.0
_READ_BYTES = 65536


class GraderProcess:
    """One grader's process, started when it is needed, and anew after it hung or died."""

    def __init__(self, grader: str, timeout_s: float) -> None:
        """Name the function `module:function`, and the seconds that it has for each output."""
        self._grader = grader
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""
        self.sha256 = ""
        """Of the file that the grader is in; empty if there is none, or before `start`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Import the grader. Raises AgentNotFound, GraderError."""
        if self._process:
            return
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")}
        command = [sys.executable, "-m", "leyden_agents.grading", self._grader]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        answer = self._answer(_IMPORT_S)
        if "refused" in answer:
            self.close()
            raise AgentNotFound(answer["refused"])
        self.sha256 = answer["sha256"]

    def grade(self, task: dict[str, Any], output: Any) -> Grade:
        """Score one output. Raises GraderError, never to be taken for a reward of zero; AgentNotFound."""
        self.start()
        assert self._process and self._process.stdin
        # It has gone when this fails; the answer that does not come says how.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"task": task, "output": output}).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answer(self._timeout_s)
        if "error" in answer:
            raise GraderError(answer["error"])
        return Grade(answer["reward"], answer["rewards"])

    def close(self) -> None:
        """End the process, and what it has started."""
        process, self._process, self._read = self._process, None, b""
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert pipe
                pipe.close()

    def _answer(self, within_s: float) -> dict[str, Any]:
        """Return the next line. Raises GraderError; then the process is gone."""
        assert self._process and self._process.stdout
        descriptor, until = self._process.stdout.fileno(), time.monotonic() + within_s
        while b"\n" not in self._read:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            data = os.read(descriptor, _READ_BYTES) if ready else b""
            if not data:
                raise GraderError(self._gone(f"it ran longer than {within_s:g} s and was killed", bool(ready)))
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _gone(self, late: str, ended: bool) -> str:
        process = self._process
        if not ended or process is None:
            self.close()
            return f"the grader's process: {late}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        code = process.poll()
        self.close()
        return f"the grader's process ended (exit code {code}) before it had answered"


def main() -> None:
    """Grade what comes on stdin, a line each; what the grader prints goes to stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)

    def answer(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line).encode() + b"\n")
        answers.flush()

    try:
        grader = load_function(sys.argv[1])
    except AgentNotFound as error:
        return answer({"refused": str(error)})
    answer({"sha256": _sha256(grader)})
    for request in requests:
        asked = json.loads(request)
        try:
            answer(grade(grader, asked["task"], asked["output"])._asdict())
        except GraderError as error:
            answer({"error": str(error)})
    return None


def _sha256(grader: Function) -> str:
    try:
        return hashlib.sha256(Path(inspect.getsourcefile(grader) or "").read_bytes()).hexdigest()
    except (OSError, TypeError):
        return ""


if __name__ == "__main__":
    main()
