"""The specification of a run: validated once, then immutable. Unknown keys and unsupported combinations are refused."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from leyden_contracts.algorithm import Algorithm, Control
from leyden_contracts.base import Message
from leyden_contracts.ids import RoleName, RunId, TenantName
from leyden_contracts.sampling import Sampling
from leyden_contracts.start import AdapterStart, Start

FunctionRef = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""`package.module:function`."""


class EpisodeRules(Message):
    """Limits of every episode."""

    timeout_s: float = Field(default=300, gt=0)
    """From the agent's start to its kill."""
    max_attempts: int = Field(default=3, ge=1, le=20)
    """Attempts that may fail before the episode has failed. Those that `infrastructure` or an `incomplete_trace` spoilt
    count a fifth."""
    max_running: int | None = Field(default=None, ge=1)
    """Episodes of this run at the same time; None is no limit of its own."""
    max_calls: int = Field(default=200, ge=1)
    """LLM calls in one attempt; the next one is refused with 429."""


class Outside(Message):
    """A model of an outside OpenAI-compatible provider. Its address and key are the gateway's settings, by name."""

    provider: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
    model: str = Field(min_length=1, max_length=200)
    """As the provider calls it."""


class EvaluationRules(Message):
    """When versions are evaluated on the run's held-out tasks, and what follows from it."""

    every: int = Field(default=0, ge=0)
    """Each version that this divides is evaluated, the base model too. 0: none is."""
    promote: bool = True
    """The version with the best score is promoted by itself; False: people do that."""


class SignalRules(Message):
    """Intermediate rewards made by rule from the agent's spans; None: that rule makes none.

    Automatic intermediate rewarding (arXiv 2508.03680, section 3.4.2). They are stored with the trajectory; `credit`
    strategies that read rewards of single calls use them, `identical` does not.
    """

    tool_error: float | None = Field(default=None, allow_inf_nan=False)
    """To the call before a tool that failed, for each."""
    tool_success: float | None = Field(default=None, allow_inf_nan=False)
    """To the call before a tool that did not fail, for each."""
    invalid_arguments: float | None = Field(default=None, allow_inf_nan=False)
    """To a call whose tool arguments are no JSON object, or were refused by the tool's schema."""
    repeated_call: float | None = Field(default=None, allow_inf_nan=False)
    """To the call before a tool used with the same name and arguments as an earlier time in the attempt."""
    format_violation: float | None = Field(default=None, allow_inf_nan=False)
    """To a call whose reply was cut by its length limit."""
    latency_per_s: float | None = Field(default=None, allow_inf_nan=False)
    """To each call, for each second that it took."""
    cost_per_1k_tokens: float | None = Field(default=None, allow_inf_nan=False)
    """To each call, for each 1,000 tokens of prompt and response."""


class Retention(Message):
    """How long a run's data is kept after the run has ended; None is for ever."""

    segments_days: float | None = Field(default=None, ge=0)
    """Raw spans: nothing but recovery of an attempt under way needs them. 0: they go as soon as the run has ended."""
    trajectories_days: float | None = Field(default=None, ge=0)
    """Trajectories. They count from the end of the run, too."""


class Role(Message):
    """One agent of a multi-agent program."""

    trained: bool = True
    """False: frozen to the base model; its calls are recorded and never trained on."""
    models: list[str] = []
    """Model names that agents with a hard-coded model use for this role (`gpt-4o-mini`)."""
    agents: list[str] = []
    """Names of agents (OpenTelemetry's `gen_ai.agent.name`, as baggage) whose calls are this role's."""
    outside: Outside | None = None
    """Who answers instead of the base model. Its calls are recorded without tokens."""

    @model_validator(mode="after")
    def _frozen_outside(self) -> Self:
        if self.outside and self.trained:
            raise ValueError("a role with `outside` cannot be trained: set `trained: false`")
        return self


Pinning = Literal["episode", "group", "call"]
"""How long the policy version stays that a trained role's first call finds newest: for the attempt at the episode, for
all episodes of the group, or for that call only."""


class RunSpec(Message):
    """One training run: base model, agent, tasks' grader, algorithm, seeds."""

    id: RunId | None = None
    """Chosen by the server if absent."""
    base_model: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w./-]{0,127}$")]
    """The name under which replicas serve the base model."""
    agent: FunctionRef
    """Called with a task's `input` in its own process; sync or async."""
    grader: FunctionRef
    """Called with (task, output) outside the agent's process; returns a number or a dict of named numbers."""
    group_size: int = Field(default=8, ge=1, le=256)
    roles: dict[RoleName, Role] = {"policy": Role()}
    sampling: Sampling = Sampling()
    pinning: Pinning = "episode"
    episodes: EpisodeRules = EpisodeRules()
    algorithm: Algorithm = Algorithm()
    start: Start | None = None
    """What makes version 1, before any training episode; None: episodes begin on the base model."""
    evaluation: EvaluationRules = EvaluationRules()
    signals: SignalRules = SignalRules()
    retention: Retention = Retention()
    seed: int = Field(default=0, ge=0, lt=2**31)
    tenant: TenantName = "default"
    """Whose run this is. Tenants share the workers equally; a token for one tenant reaches its runs only."""
    priority: int = Field(default=0, ge=-100, le=100)
    """A tenant's runs of higher priority start their episodes first."""

    @property
    def trained_roles(self) -> tuple[str, ...]:
        """The names of the trained roles, in alphabetical order. They share version numbers: one step makes version n
        of each."""
        return tuple(sorted(name for name, role in self.roles.items() if role.trained))

    @property
    def lead_role(self) -> str:
        """The first of the trained roles. Its manifest commits a version, and so is written after the others'."""
        return self.trained_roles[0]

    @property
    def first_version(self) -> int:
        """The version that training episodes begin with: 1 where a start makes it, else the base model."""
        return int(self.start is not None)

    @model_validator(mode="after")
    def _supported(self) -> Self:
        if not self.trained_roles:
            raise ValueError("no role is trained: leave `trained: false` out of one of `roles`")
        names = [name for role in self.roles.values() for name in role.models]
        if len(names) != len(set(names)):
            raise ValueError("a model name may stand for one role only: remove the duplicate from `roles.*.models`")
        agents = [name for role in self.roles.values() for name in role.agents]
        if len(agents) != len(set(agents)):
            raise ValueError("an agent may have one role only: remove the duplicate from `roles.*.agents`")
        algorithm = self.algorithm
        if self.group_size < algorithm.least_episodes:
            raise ValueError(
                f"`advantage: {algorithm.advantage}` needs {algorithm.least_episodes} episodes of a task: set "
                "`group_size` to that or more, or `algorithm.least_episodes` to less where the advantage allows it"
            )
        algorithm.selection.check_fits(self.group_size, algorithm.least_episodes, self.sampling.max_tokens)
        if algorithm.compare_roles == "apart" and len(self.trained_roles) < 2:
            raise ValueError("`compare_roles: apart` is for several trained roles: leave it out")
        if self.algorithm.control is Control.UNPUBLISHED and self.algorithm.max_staleness < 1000:
            raise ValueError("`control: unpublished` trains on version 0 for ever: set `max_staleness` to 1000 or more")
        return self

    @model_validator(mode="after")
    def _start_is_used(self) -> Self:
        if self.start is None:
            return self
        if self.algorithm.control is Control.UNPUBLISHED:
            raise ValueError("`control: unpublished` has no version but 0: leave `start` out")
        of_source = isinstance(self.start, AdapterStart)
        if not of_source and self.start.role is not None and self.start.role not in self.trained_roles:
            known = ", ".join(self.trained_roles)
            raise ValueError(f"`start.role` {self.start.role!r} is no trained role: {known} are")
        return self

    @model_validator(mode="after")
    def _evaluation_means_something(self) -> Self:
        if not self.evaluation.every and not self.evaluation.promote:
            raise ValueError("`evaluation.promote` is about evaluations, and there are none: set `evaluation.every`")
        if self.evaluation.every and self.algorithm.control is Control.UNPUBLISHED:
            raise ValueError("`control: unpublished` has no version but 0: leave `evaluation.every` out")
        return self
