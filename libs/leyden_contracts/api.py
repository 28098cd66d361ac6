"""What the task API answers with: the shapes that its service and its client share."""

from typing import Any, Literal

from pydantic import Field

from leyden_contracts.base import Message
from leyden_contracts.episode import Episode, Purpose
from leyden_contracts.ids import ObjectId, RoleName, RunId
from leyden_contracts.promotion import Evaluation, Promotion
from leyden_contracts.rewards import RewardVersionName
from leyden_contracts.run import RunSpec
from leyden_contracts.start import StartOrigin
from leyden_contracts.step import Signal, Step, TextCall
from leyden_contracts.task import Task
from leyden_contracts.transition import Verdict


class RunCounters(Message):
    """Where a run stands."""

    state: Literal["open", "sealed", "finished", "cancelled"]
    held: str | None = None
    """Why no episode starts at the moment: `paused` or `recovering`."""
    counts: dict[str, int]
    """`purpose:state` (`train:queued`) -> episodes."""
    failures: dict[str, int]
    """Reason -> failed attempts."""
    rewards: dict[str, tuple[float, int]]
    """`train`, or `eval:VERSION` -> (sum of rewards, episodes)."""
    groups_accepted: int
    groups_released: int
    groups_finished: int
    groups_consumed: int
    groups_asked: int = 0
    """Groups that dynamic sampling asked for, beyond `groups_per_step` for each step."""
    version_published: int
    version_ready: int
    held_out: bool = False
    """Whether there are held-out tasks to evaluate versions on."""
    promoted: int | None = None
    """The promoted version; None before the first promotion."""
    pending: int = 0
    """Episodes of the queued ones that no worker can take yet: they wait in the object store."""
    episodes_accepted: int = 0
    never_entered: dict[str, int] = {}
    """Purpose -> cancelled episodes that had not left the object store."""


class RunView(Message):
    """A run and where it stands."""

    spec: RunSpec
    summary: RunCounters


class RunList(Message):
    """One page of runs, by id."""

    runs: list[RunView]
    next: int | None
    """`start` of the next page; None at the end."""


class Uploaded(Message):
    """What became of an upload of tasks."""

    batch: str
    """Names the upload. Its group ids are `{task}-{batch}-{n}`."""
    groups: int
    episodes: int
    """Episodes of the whole upload, were they made now or by an earlier try."""
    repeated: bool
    """The same upload had been accepted before; nothing was made twice."""


class EpisodeList(Message):
    """One page of episodes, in order of acceptance."""

    episodes: list[Episode]
    """May be shorter than asked for, even empty, before the end: a purpose filters the page."""
    next: int | None
    """`start` of the next page; None at the end."""


class CallView(Message):
    """One call of a trajectory, with token ids and logprobs as plain lists. Text is not stored."""

    number: int
    role: RoleName
    policy_version: int
    prompt_token_ids: list[int]
    response_token_ids: list[int]
    response_logprobs: list[float]
    """Natural log; one for each response token."""
    temperature: float
    finish_reason: str
    response_id: str
    replica: str
    start_ns: int = 0
    """When the request reached the gateway, by its clock, nanoseconds since the epoch."""
    end_ns: int = 0
    """When the reply was about to leave."""
    parent: str = ""
    """Span id of the step or text call around it, if there is one in the trajectory."""
    agent: str = ""
    """The agent that made it, if the agent's own spans say."""


class TrajectoryView(Message):
    """An episode's stored trajectory."""

    run: RunId
    group: ObjectId
    episode: ObjectId
    task: ObjectId
    attempt: int
    purpose: Purpose
    reward: float
    rewards: dict[str, float]
    verdict: Verdict
    calls: list[CallView]
    output: Any = None
    """What the agent returned, cut to 16 KB."""
    steps: list[Step] = []
    signals: list[Signal] = []
    texts: list[TextCall] = []


class TrajectoryHead(Message):
    """A stored trajectory without its tokens."""

    episode: ObjectId
    group: ObjectId
    task: ObjectId
    attempt: int
    purpose: Purpose
    reward: float | None
    """None: the reward version that was asked for has none for this episode."""
    rewards: dict[str, float]
    verdict: Verdict
    calls: int
    tokens: int
    """Of all prompts and responses."""
    steps: int
    texts: int
    """Calls that did not pass the gateway."""
    output: Any = None
    """What the agent returned, cut to 16 KB."""


class TrajectoryList(Message):
    """One page of trajectories, in order of acceptance."""

    trajectories: list[TrajectoryHead]
    """May be shorter than asked for, even empty, before the end: filters apply to the page."""
    tasks: dict[ObjectId, Task] = {}
    """The tasks of this page, if they were asked for."""
    next: int | None
    """`start` of the next page; None at the end."""


class RewardVersionHead(Message):
    """A reward version without its lines."""

    version: RewardVersionName
    grader: str
    grader_sha256: str
    created: float
    scored: int
    """Episodes with a reward."""
    failed: int
    """Episodes that could not be scored; none of them counts as zero."""
    mean: float | None
    """Of the rewards; None if there is none."""


class QuarantinedSpan(Message):
    """A span that was refused, and why."""

    kind: str
    reason: str
    ended: float | None
    """When it ended, by its sender's clock, in seconds since the epoch; None if it does not say."""
    span: dict[str, Any] | None
    """As OTLP's JSON, long values cut; None: it is no span."""
    bytes: int
    """Its whole size."""


class QuarantineList(Message):
    """One page of refused spans."""

    spans: list[QuarantinedSpan]
    next: str | None
    """`after` of the next page; None at the end."""


class QuarantineCounts(Message):
    """How many spans were refused, by kind."""

    kinds: dict[str, int]
    complete: bool
    """False: there are more than were counted."""


class AdapterView(Message):
    """A stored policy version. The whole manifest is the file `manifest.json` among its downloads."""

    role: RoleName
    version: int
    parent: int
    files: dict[str, str]
    """File name -> sha256 in hex."""
    groups: int
    """Groups consumed by this step."""
    skipped: dict[str, str]
    """Group id -> why it gave no signal."""
    metrics: dict[str, float]
    created: float
    """Seconds since the epoch, learner's clock."""


class EvalMean(Message):
    """How graded episodes did."""

    mean: float
    """Mean reward."""
    episodes: int
    """Graded episodes; failed ones have no reward and are not in it."""


class RunMetrics(Message):
    """A run's curves."""

    train: EvalMean | None
    """All graded training episodes; None before the first."""
    evals: dict[int, EvalMean]
    """Policy version -> evaluation episodes on it."""
    versions: list[AdapterView]
    """Training steps, in order; `metrics` hold each step's figures."""


class VersionView(Message):
    """A policy version: how good it is, where it is served, and whether it is the one to use."""

    version: int
    parent: int | None
    """The version it was trained from; None for the base model."""
    metrics: dict[str, float]
    """Of the training step."""
    evaluation: Evaluation | None
    """Score with its 95 % interval, counts, or why there is no score; None: not evaluated, or not yet."""
    evaluating: bool
    """Its evaluation is under way."""
    ready: list[str]
    """Replicas that have proved it and serve it now."""
    withheld: dict[str, str]
    """Replica -> why it does not serve it."""
    proved: bool
    """Some replica has proved it, now or earlier: it can be promoted."""
    promoted: bool
    created: float | None
    """Seconds since the epoch, learner's clock; None for the base model."""


class VersionList(Message):
    """A run's versions, ascending, from the base model on."""

    promoted: int | None
    latest: int
    """The newest version that a replica has proved."""
    promotions: list[Promotion]
    """All of them, oldest first; the last one is in force."""
    versions: list[VersionView]


class Lineage(Message):
    """What made a version."""

    run: RunId
    role: RoleName
    version: int
    parents: list[int]
    """The versions it comes from, nearest first; the last one is 0, the base model."""
    base_model: str
    agent: str
    grader: str
    """`package.module:function`."""
    seed: int
    config: dict[str, Any]
    """The run's algorithm section, as used."""
    groups: list[ObjectId]
    """Groups consumed by this step; each episode of one has its trajectory under the group's id."""
    trained_episodes: list[ObjectId]
    """Episodes whose trajectories entered the batch."""
    skipped: dict[str, str]
    """Group id -> why it gave no signal."""
    files: dict[str, str]
    """File name -> sha256 in hex."""
    start: StartOrigin | None = None
    """Where version 1 came from, if a start made it."""
    metrics: dict[str, float]
    evaluation: Evaluation | None
    promotions: list[Promotion]
    """Those of this version."""
    created: float | None


class StartView(Message):
    """Where a run's start stands."""

    state: Literal["waiting_for_data", "under_way", "refused", "done"]
    """`under_way`: its data is there, and the learner has not made version 1 yet."""
    lines: int | None = None
    """Of uploaded data; None: there is none, or none yet."""
    digest: str | None = None
    """Of uploaded data."""
    reason: str | None = None
    """Why the learner refused; it tries again when it is started again."""
    origin: StartOrigin | None = None
    """What version 1 of the lead role was made from."""


class Promote(Message):
    """What to promote."""

    version: int = Field(ge=0, le=10**9)


class RollBack(Message):
    """What to roll back."""

    undo: int | None = Field(default=None, ge=1)
    """Number of the promotion to undo; None: the one in force. With it, a repeated request rolls back once."""
