"""Episodes, their attempts, and the one table that says which state may follow which."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId, RunId

Purpose = Literal["train", "eval"]


class EpisodeState(StrEnum):
    """Where an episode stands."""

    QUEUED = "queued"
    """Accepted; waits for its group's release, for a worker, or for its back-off to pass."""
    RUNNING = "running"
    """One attempt holds the lease."""
    COLLECTING = "collecting"
    """The attempt is closed; its trajectory waits for the last spans."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


_S = EpisodeState
EPISODE_TRANSITIONS: dict[EpisodeState, frozenset[EpisodeState]] = {
    _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED}),
    # Back to queued: the attempt failed or its lease ran out, and attempts are left.
    _S.RUNNING: frozenset({_S.QUEUED, _S.COLLECTING, _S.FAILED, _S.TIMED_OUT, _S.CANCELLED}),
    # Back to queued: a call's span never arrived (incomplete), and attempts are left.
    _S.COLLECTING: frozenset({_S.QUEUED, _S.SUCCEEDED, _S.FAILED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.TIMED_OUT: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""State -> states that may follow. The ledger's scripts are tested against this table."""

TERMINAL_STATES = frozenset(state for state, after in EPISODE_TRANSITIONS.items() if not after)


def allowed(before: EpisodeState, after: EpisodeState) -> bool:
    """Say whether an episode may go from `before` to `after`."""
    return after in EPISODE_TRANSITIONS[before]


class FailureReason(StrEnum):
    """Why an attempt did not succeed. None of them ever becomes a reward (I6)."""

    AGENT_ERROR = "agent_error"
    """The agent raised, or its process died by itself."""
    TIMEOUT = "timeout"
    """The agent ran past its deadline and was killed."""
    GRADER_ERROR = "grader_error"
    """The grader raised, hung, or returned something that is not a finite number."""
    WORKER_LOST = "worker_lost"
    """The lease ran out: the worker died or was cut off."""
    INCOMPLETE_TRACE = "incomplete_trace"
    """A counted call's span never arrived."""
    CANCELLED = "cancelled"
    INFRASTRUCTURE = "infrastructure"
    """The gateway, engine or store failed the attempt; the agent is not to blame."""


class AttemptResult(Message):
    """What a worker reports when it closes an attempt."""

    outcome: Literal["graded", "failed"]
    reward: float | None = Field(default=None, allow_inf_nan=False)
    """The grader's number; set exactly when `outcome` is `graded`."""
    rewards: dict[str, float] = {}
    """Named rewards, where the grader returned several. `reward` is then their `"reward"` entry, or their sum."""
    call_rewards: tuple[float, ...] = ()
    """The grader's intermediate rewards: the n-th is call n's. May be shorter than there are calls."""
    output: Any = None
    """What the agent returned (JSON), cut to 16 KB."""
    reason: FailureReason | None = None
    """Set exactly when `outcome` is `failed`."""
    message: str = ""
    """For people: the last lines of the error."""


class Episode(Message):
    """One execution of the agent on a task, as the ledger shows it."""

    id: ObjectId
    run: RunId
    group: ObjectId
    task: ObjectId
    index: int
    """Position in its group, from 0."""
    purpose: Purpose
    state: EpisodeState
    attempt: int = 0
    """Number of the latest attempt; 0 before the first. It is the fencing token."""
    reward: float | None = None
    policy_version: int | None = None
    """The version pinned at the attempt's first call."""
    reason: FailureReason | None = None
    """Of the latest failed attempt."""
    message: str = ""
    calls: int = 0
    """Replies counted by the gateway in the latest attempt."""
    batch: str | None = None
    """The batch that holds its trajectory, once it has succeeded."""
