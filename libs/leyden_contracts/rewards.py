"""Reward versions: stored trajectories scored again. What grading made at the time is version `0`, in trajectories."""

from typing import Annotated

from pydantic import Field, StringConstraints

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId, RunId
from leyden_contracts.run import FunctionRef

RewardVersionName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,31}$")]
"""Lower-case letters, digits, `.` and `-`; at most 32 characters."""
GRADED = "0"
"""The name of what grading made at the time."""
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]


class RewardLine(Message):
    """One episode's reward in a version."""

    episode: ObjectId
    attempt: int
    reward: FiniteFloat
    rewards: dict[str, FiniteFloat] = {}
    """Named rewards, where the grader returned several."""


class NewRewards(Message):
    """A reward version as it is handed in."""

    version: RewardVersionName
    grader: FunctionRef
    grader_sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """Of the file that the grader is in; empty if there is none."""
    lines: tuple[RewardLine, ...]
    """By episode, each at most once."""
    failed: dict[ObjectId, str] = {}
    """Episode -> why it has no reward. It is never a zero."""


class RewardVersion(NewRewards):
    """A stored reward version: immutable. The trajectories themselves never change."""

    run: RunId
    created: float
    """Seconds since the epoch, by the task API's clock."""
