"""What happens in the process of one attempt, between its fork from the warm parent and its end."""

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import leyden_agents.contract
from leyden_worker import kernel

_FRAMES = 8
_ERROR_CHARACTERS = 3000
_OURS = (str(Path(__file__).parent), leyden_agents.contract.__file__)


@dataclass(frozen=True)
class Request:
    """One call that the worker asks for, as it travels to the warm parent."""

    id: int
    arguments: list[Any]
    timeout_s: float
    env: dict[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    max_report_bytes: int = 8 * 2**20
    flush_s: float = 5.0
    """How long the agent's own telemetry may take to send its last spans."""


@dataclass(frozen=True)
class Ends:
    """The child's ends of what it shares with the warm parent."""

    parent: int
    report: int
    output: int
    strange: frozenset[int]
    """File descriptors of the parent and of other attempts: not to be kept open here."""


def run(function: Callable[..., Any], request: Request, ends: Ends) -> NoReturn:
    """Call `function` and report to `ends.report` what came of it. Never returns."""
    code = 1
    try:
        _become(request, ends)
        _write(ends.report, _report(function, request))
        flush(request.flush_s)
        code = 0
    finally:
        # Not sys.exit(): what the warm parent registered to run at its exit is not this process's to run.
        os._exit(code)


def _become(request: Request, ends: Ends) -> None:
    os.setsid()
    kernel.die_with_parent(ends.parent, signal.SIGKILL)
    kernel.adopt_orphans()
    kernel.hide(False)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor in ends.strange:
        os.close(descriptor)
    for standard in (1, 2):
        os.dup2(ends.output, standard)
    os.close(ends.output)
    for name, value in request.env.items():  # update() would look at more, and here every page looked at is copied
        os.environ[name] = value
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if request.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request.memory_bytes, request.memory_bytes))
    if "numpy.random" in sys.modules:
        # The episodes of one group would otherwise draw the same numbers. `random` reseeds itself.
        sys.modules["numpy.random"].seed()


def _report(function: Callable[..., Any], request: Request) -> bytes:
    try:
        report = json.dumps({"value": function(*request.arguments)}).encode()
    except BaseException as error:
        return json.dumps({"error": describe(error)}).encode()
    if len(report) <= request.max_report_bytes:
        return report
    message = (
        f"the output is {len(report):,} bytes of JSON and the limit is {request.max_report_bytes:,}: return less, or "
        "raise LEYDEN_WORKER_MAX_OUTPUT_BYTES"
    )
    return json.dumps({"error": {"types": [], "message": message}}).encode()


def describe(error: BaseException) -> dict[str, Any]:
    """Return an exception's class names, those of its bases and of its causes, and the last lines of its traceback."""
    if isinstance(error, SystemExit):
        message = f"it called exit({error.code!r}) instead of returning an output"
    elif isinstance(error, leyden_agents.contract.AgentNotFound | leyden_agents.contract.OutputError):
        message = str(error)
    elif isinstance(error, leyden_agents.contract.GraderError):
        message = str(error) + ("\n" + _lines(error.__cause__) if error.__cause__ else "")
    else:
        message = _lines(error)
    return {"types": _names(error), "message": message[-_ERROR_CHARACTERS:]}


def _names(error: BaseException) -> list[str]:
    names: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(names) < 50:
        names += [kind.__name__ for kind in type(cause).__mro__]
        cause = cause.__cause__
    return names


def _lines(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, _theirs(error.__traceback__), limit=-_FRAMES)).strip()


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that are Leyden's, which come first and tell the agent's author nothing."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def flush(seconds: float) -> None:
    """Send on what was printed, and the spans of the agent's own OpenTelemetry, if it uses that."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    telemetry = sys.modules.get("opentelemetry.trace")
    if telemetry is None:
        return
    force_flush = getattr(telemetry.get_tracer_provider(), "force_flush", None)
    if force_flush is None:
        return
    import threading  # there already, with the telemetry

    # In a thread of its own: exporters retry for longer than they are told to.
    flusher = threading.Thread(target=force_flush, args=(int(seconds * 1000),), daemon=True)
    flusher.start()
    flusher.join(seconds)
