"""The typed messages that Leyden's parts exchange, and the episode's state table.

Start with `transition.py`: everything else exists to produce, move or learn from a `Transition`.
This package imports pydantic and nothing else.
"""

from leyden_contracts.adapter import AdapterManifest, Probe, adapter_name
from leyden_contracts.algorithm import Algorithm, Control, LoraShape
from leyden_contracts.critic import Critic
from leyden_contracts.episode import (
    EPISODE_TRANSITIONS,
    TERMINAL_STATES,
    AttemptResult,
    Episode,
    EpisodeState,
    FailureReason,
    Purpose,
    allowed,
)
from leyden_contracts.group import Group, GroupState
from leyden_contracts.ids import RunId, content_id, episode_id, group_id, new_run_id
from leyden_contracts.problem import Problem
from leyden_contracts.promotion import Evaluation, Promotion
from leyden_contracts.rewards import NewRewards, RewardLine, RewardVersion
from leyden_contracts.run import (
    EpisodeRules,
    EvaluationRules,
    Outside,
    Pinning,
    Retention,
    Role,
    RunSpec,
    SignalRules,
)
from leyden_contracts.sampling import Bounds, Sampling
from leyden_contracts.selection import Selection
from leyden_contracts.start import AdapterStart, DpoStart, SftStart, Start, StartOrigin, StartRefusal, StoredStart
from leyden_contracts.step import Signal, Step, TextCall
from leyden_contracts.task import Task, TaskInput, TaskUpload
from leyden_contracts.transition import Call, Trajectory, Transition, Verdict, checked_transition
from leyden_contracts.upload import StoredUpload

__all__ = [
    "EPISODE_TRANSITIONS",
    "TERMINAL_STATES",
    "AdapterManifest",
    "AdapterStart",
    "Algorithm",
    "AttemptResult",
    "Bounds",
    "Call",
    "Control",
    "Critic",
    "DpoStart",
    "Episode",
    "EpisodeRules",
    "EpisodeState",
    "Evaluation",
    "EvaluationRules",
    "FailureReason",
    "Group",
    "GroupState",
    "LoraShape",
    "NewRewards",
    "Outside",
    "Pinning",
    "Probe",
    "Problem",
    "Promotion",
    "Purpose",
    "Retention",
    "RewardLine",
    "RewardVersion",
    "Role",
    "RunId",
    "RunSpec",
    "Sampling",
    "Selection",
    "SftStart",
    "Signal",
    "SignalRules",
    "Start",
    "StartOrigin",
    "StartRefusal",
    "Step",
    "StoredStart",
    "StoredUpload",
    "Task",
    "TaskInput",
    "TaskUpload",
    "TextCall",
    "Trajectory",
    "Transition",
    "Verdict",
    "adapter_name",
    "allowed",
    "checked_transition",
    "content_id",
    "episode_id",
    "group_id",
    "new_run_id",
]
