"""The ledger: which episodes exist, who runs them, and how each ended. Redis is the index; the store is the record.

`Ledger` is one connection with a facet for each kind of user. The state table is `leyden_contracts.episode`; the
changes are the Lua scripts beside this file, each atomic.
"""

from leyden_ledger.assembly import AgentNote, Batch, Closed, Ending, Refusal, SpanNote
from leyden_ledger.calls import CallPermit
from leyden_ledger.episodes import Claim, Standing
from leyden_ledger.errors import (
    BacklogFull,
    Conflict,
    EpisodeNotFound,
    Fenced,
    LedgerError,
    Outpaced,
    RunNotFound,
    Sealed,
    TooManyCalls,
)
from leyden_ledger.ledger import Ledger
from leyden_ledger.promotions import Promoted
from leyden_ledger.replicas import ReplicaStatus
from leyden_ledger.runs import RunState, RunSummary
from leyden_ledger.uploads import NewGroup, NewUpload, Registered, Window

__all__ = [
    "AgentNote",
    "BacklogFull",
    "Batch",
    "CallPermit",
    "Claim",
    "Closed",
    "Conflict",
    "Ending",
    "EpisodeNotFound",
    "Fenced",
    "Ledger",
    "LedgerError",
    "NewGroup",
    "NewUpload",
    "Outpaced",
    "Promoted",
    "Refusal",
    "Registered",
    "ReplicaStatus",
    "RunNotFound",
    "RunState",
    "RunSummary",
    "Sealed",
    "SpanNote",
    "Standing",
    "TooManyCalls",
    "Window",
]
