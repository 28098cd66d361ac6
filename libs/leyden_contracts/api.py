"""What the task API answers with: the shapes that its service and its client share."""

from typing import Literal

from leyden_contracts.base import Message
from leyden_contracts.episode import Episode, Purpose
from leyden_contracts.ids import ObjectId, RoleName, RunId
from leyden_contracts.run import RunSpec
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
    version_published: int
    version_ready: int
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
