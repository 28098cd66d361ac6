"""Groups: the episodes of one task under one run; what GRPO compares."""

from enum import StrEnum

from leyden_contracts.base import Message
from leyden_contracts.episode import Purpose
from leyden_contracts.ids import ObjectId, RunId


class GroupState(StrEnum):
    """Where a group stands."""

    WAITING = "waiting"
    """Accepted; held back until the staleness bound lets it start."""
    RELEASED = "released"
    """Its episodes may run."""
    FINISHED = "finished"
    """Every episode is terminal; announced to the learner if it is for training."""


class Group(Message):
    """One group, as the ledger announces it."""

    id: ObjectId
    run: RunId
    task: ObjectId
    purpose: Purpose
    size: int
    sequence: int
    """Place in the run's order of acceptance, from 0. Groups are released in this order, but for those that
    `selection.mastered_last` puts off."""
    policy_version: int | None = None
    """Version that was asked for (evaluation of a fixed version)."""
