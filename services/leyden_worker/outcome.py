"""Turns the end of an agent's or a grader's process into the attempt's result. No failure is ever a reward (I6)."""

import json
import os
import signal
from typing import Any

from leyden_contracts import AttemptResult, FailureReason
from leyden_worker.parent_link import End

NOT_THE_AGENT = frozenset({"APIConnectionError", "APITimeoutError", "InternalServerError"})
"""Exceptions of the `openai` SDK (and others of its making) that say: the gateway or the engine failed."""
_OUTPUT_BYTES = 16384
_MESSAGE_CHARACTERS = 4000
_PRINTED_CHARACTERS = 1500


class AttemptFailed(Exception):
    """The attempt came to nothing."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def result(self) -> AttemptResult:
        """What to report."""
        return AttemptResult(outcome="failed", reason=self.reason, message=str(self)[-_MESSAGE_CHARACTERS:])


def agent_output(end: End, timeout_s: float) -> Any:
    """Return what the agent returned. Raises AttemptFailed."""
    return _value(end, "agent", FailureReason.AGENT_ERROR, FailureReason.TIMEOUT, timeout_s)


def graded(end: End, timeout_s: float, output: Any) -> AttemptResult:
    """Return the result with the grader's reward. Raises AttemptFailed."""
    grade = _value(end, "grader", FailureReason.GRADER_ERROR, FailureReason.GRADER_ERROR, timeout_s)
    return AttemptResult(
        outcome="graded",
        reward=grade["reward"],
        rewards=grade["rewards"],
        call_rewards=grade["calls"],
        output=shortened(output),
    )


def shortened(output: Any) -> Any:
    """Return `output`, or the first 16 KB of its JSON as text."""
    text = json.dumps(output, ensure_ascii=False)
    data = text.encode(errors="replace")
    return output if len(data) <= _OUTPUT_BYTES else data[:_OUTPUT_BYTES].decode(errors="ignore")


def _value(end: End, who: str, reason: FailureReason, late: FailureReason, timeout_s: float) -> Any:
    # First: a child that has reported and is killed while it flushes its spans has done its work.
    if end.report is not None:
        if "value" in end.report:
            return end.report["value"]
        error = end.report["error"]
        if NOT_THE_AGENT.intersection(error["types"]):
            raise AttemptFailed(FailureReason.INFRASTRUCTURE, error["message"])
        raise AttemptFailed(reason, error["message"])
    raise _without_report(end, who, reason, late, timeout_s)


def _without_report(end: End, who: str, reason: FailureReason, late: FailureReason, timeout_s: float) -> AttemptFailed:
    printed = f"; the last it printed:\n{end.printed[-_PRINTED_CHARACTERS:].strip()}" if end.printed.strip() else ""
    match end.how:
        case "timeout":
            return AttemptFailed(late, f"the {who} ran longer than {timeout_s:g} s and was killed{printed}")
        case "signalled":
            name = signal.Signals(end.code).name if end.code in set(signal.Signals) else f"signal {end.code}"
            return AttemptFailed(reason, f"the {who}'s process was killed by {name}{printed}")
        case "exited":
            return AttemptFailed(reason, f"the {who}'s process ended with exit code {end.code}{printed}")
        case "unborn":
            message = f"no process could be started for the {who}: {os.strerror(end.code)}"
            return AttemptFailed(FailureReason.INFRASTRUCTURE, message)
    return AttemptFailed(FailureReason.INFRASTRUCTURE, f"the process that started the {who} was lost{printed}")
