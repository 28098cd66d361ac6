"""Failpoints: named places where a process can be told to die, fail or stall, to test what the others make of it.

    LEYDEN_FAILPOINTS="task_api.stored=kill,worker.claimed=kill@3,gateway.counted=sleep:2.5,collector.stored=error"

`NAME=ACTION` acts whenever the place is passed, `NAME=ACTION@N` only the Nth time. A place is one line where a step
of DESIGN section 3 changes hands; without the variable it costs a look at an empty table.
"""

import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

VARIABLE = "LEYDEN_FAILPOINTS"

POINTS = {
    "task_api.stored": "an upload is in the object store, not in the ledger",
    "task_api.accepted": "an upload is in the ledger, its client has no answer",
    "task_api.evaluating": "an evaluation is in the object store, not in the ledger",
    "task_api.evaluated": "an evaluation's result is in the object store, not in the ledger",
    "task_api.promoted": "a promotion is in the object store, not in the ledger",
    "task_api.due": "the ledger has handed out due episodes, none is rung for",
    "task_api.rung": "due episodes are rung for",
    "worker.claimed": "an episode is claimed, nothing has been done for it",
    "worker.starting": "task and run are read, the agent has not started",
    "worker.agent_ended": "the agent has ended, its output is not graded",
    "worker.closing": "the result is known, the ledger has not been told",
    "worker.closed": "the ledger has the result",
    "gateway.replied": "the replica has replied, the reply is not counted",
    "gateway.counted": "the reply is counted, its span is not handed over",
    "gateway.answering": "the span is queued, the agent has no answer",
    "collector.stored": "a segment is in the object store, not in the ledger",
    "collector.noted": "a segment is noted in the ledger, its sender has no answer",
    "collector.leased": "the ledger has formed a batch of closed attempts, nothing of it is stored",
    "collector.written": "a batch of trajectories is in the object store, the ledger has not been told",
    "learner.read": "the trajectories of a step are read, nothing is made of them",
    "learner.batched": "a batch is chosen, its random numbers are drawn",
    "learner.probed": "the probes are begun, no gradient is computed",
    "learner.gradients": "all gradients of a step are computed, no weight has moved",
    "learner.stepped": "the weights have moved, nothing of the version is stored",
    "learner.file": "a file of a version is in the object store; passed once for each",
    "learner.followed": "the manifest of a role that is not the lead is in the object store; passed once for each",
    "learner.start_stepped": "a start has taken a step, nothing of it is stored",
    "learner.start_committed": "a start's version is committed in the object store, not published",
    "learner.written": "all of a version but its last manifest is in the object store",
    "learner.committed": "a version is committed in the object store, not published",
    "learner.published": "a version is published, its groups are not marked as consumed",
    "learner.consumed": "a version's groups are marked as consumed, the next step has not begun",
}
"""Every place there is -> what holds there."""

_SHAPE = re.compile(r"(?P<name>[a-z_.]+)=(?P<action>kill|error|sleep:(?P<seconds>\d+(\.\d+)?))(@(?P<nth>[1-9]\d*))?")


class FailpointError(Exception):
    """A failpoint was told to fail here."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """What happens at one place."""

    name: str
    kind: str
    """`kill`, `error` or `sleep`."""
    seconds: float
    """How long `sleep` holds up the whole process, its event loop included."""
    nth: int | None
    """Which passage it acts on; None for each."""
    _passages: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def passed(self) -> None:
        """Act, if this passage is the one. Raises FailpointError."""
        passage = next(self._passages)
        if self.nth not in (None, passage):
            return
        print(f"failpoint: {self.name}: {self.kind} at passage {passage}", file=sys.stderr, flush=True)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "sleep":
            time.sleep(self.seconds)
        else:
            raise FailpointError(f"failpoint {self.name}")


def parse(text: str) -> dict[str, Failpoint]:
    """Return the failpoints that `text` names. Raises ValueError with what to change."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _SHAPE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not of the form NAME=kill|error|sleep:SECONDS, with @N behind it or not")
        name = match["name"]
        if name not in POINTS:
            raise ValueError(f"there is no failpoint {name!r}; known ones: {', '.join(POINTS)}")
        if name in found:
            raise ValueError(f"{name!r} is named twice")
        nth = int(match["nth"]) if match["nth"] else None
        found[name] = Failpoint(name, match["action"].partition(":")[0], float(match["seconds"] or 0), nth)
    return found


def failpoint(name: str) -> None:
    """Mark a place; `name` is a key of `POINTS`. Raises FailpointError if that was asked for."""
    if _armed and name in _armed:
        _armed[name].passed()


def _from_environment() -> dict[str, Failpoint]:
    try:
        return parse(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        # As with any other setting that is wrong.
        print(f"settings: {VARIABLE}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


_armed = _from_environment()
