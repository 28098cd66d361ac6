"""Which version of a run is to be used: what evaluations found, and the promotions that followed."""

from typing import Literal

from pydantic import Field

from leyden_contracts.base import Message
from leyden_contracts.ids import ObjectId, RunId


class Evaluation(Message):
    """How one version did on the run's held-out tasks. Written once, when the last of its episodes has ended."""

    run: RunId
    version: int = Field(ge=0)
    batch: ObjectId
    """The upload that asked for it."""
    counts: dict[str, int]
    """Terminal state -> episodes. Only succeeded ones have a reward; the others are counted, never scored (I6)."""
    score: float | None = None
    """Mean reward of the succeeded episodes; None if there are too few of them."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the mean; None without a score, or with less than two tasks."""
    reason: str | None = None
    """Why there is no score."""
    created: float
    """Seconds since the epoch, clock of the task API that wrote it. For people only."""


class Promotion(Message):
    """One entry of a run's numbered list of promotions; the last one is in force."""

    run: RunId
    number: int = Field(ge=1)
    """Place in the list, from 1."""
    version: int = Field(ge=0)
    """The version that is promoted from here on."""
    cause: Literal["evaluation", "person", "rollback"]
    score: float | None = None
    """Of the version on the held-out tasks, as far as known."""
    before: int | None = None
    """Number of the promotion that a roll back returns to; None if there is none."""
    predecessor: int | None = None
    """Version of `before`."""
    floor: int = -1
    """Evaluations of versions up to this one promote nothing any more: a person decided after them."""
    created: float
    """Seconds since the epoch, clock of the task API that wrote it. For people only."""
