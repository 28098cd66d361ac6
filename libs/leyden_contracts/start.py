"""How a run begins from a warm adapter: by supervised fine-tuning, by preferences, or with another run's version.

The start makes version 1 of every trained role; reinforcement learning goes on from there, with optimizers of its own.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from leyden_contracts.base import Message
from leyden_contracts.ids import RoleName, RunId

PairingName = Literal["extremes", "every"]


class _Training(Message):
    """How a start that learns from data does it."""

    run: RunId | None = None
    """The run whose stored training trajectories are the data: of the same tenant and base model, and ended. None: the
    data is uploaded (`PUT /v1/runs/{run}/start`)."""
    role: RoleName | None = None
    """Only this role's calls, of `run`. None: those of every trained role, by name."""
    epochs: int | None = Field(default=None, ge=1)
    """How often all data is gone through; None is 1, unless `steps` is given."""
    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps, as many epochs as that takes."""
    batch_size: int = Field(default=16, ge=1)
    """Conversations (or pairs) in one optimizer step."""
    max_length: int | None = Field(default=None, ge=2)
    """In tokens. What is longer is left out, and counted. None: nothing may be longer than the model's positions."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("`epochs` and `steps` both say how long: give one of them")
        if self.role is not None and self.run is None:
            raise ValueError("`role` chooses calls of `run`: give `run`, or name the role in each uploaded line")
        return self


class SftStart(_Training):
    """Supervised fine-tuning: what assistants said is made likelier (arXiv 2203.02155, section 3.5)."""

    kind: Literal["sft"]
    learning_rate: float = Field(default=1e-4, gt=0)
    min_reward: float | None = Field(default=None, allow_inf_nan=False)
    """Only trajectories of `run` that earned this or more."""

    @model_validator(mode="after")
    def _chooses_of_a_run(self) -> Self:
        if self.min_reward is not None and self.run is None:
            raise ValueError("`min_reward` chooses trajectories of `run`: give `run`, or choose before the upload")
        return self


class DpoStart(_Training):
    """Direct preference optimisation (arXiv 2305.18290), of whole episodes where they are of a run (2403.02502)."""

    kind: Literal["dpo"]
    learning_rate: float = Field(default=1e-5, gt=0)
    beta: float = Field(default=0.1, gt=0)
    """How much leaving the base model costs."""
    smoothing: float = Field(default=0, ge=0, lt=0.5)
    """The share of pairs believed to be the wrong way round."""
    pairing: PairingName | None = None
    """Of each group of `run`: the best episode with the worst (`extremes`; so None), or `every` one with each that
    earned less."""
    margin: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The better episode of a pair earned more than this above the other; None is 0."""

    @model_validator(mode="after")
    def _pairs_of_a_run(self) -> Self:
        if self.run is None and (self.pairing is not None or self.margin is not None):
            raise ValueError("`pairing` and `margin` make pairs of the groups of `run`: give `run`, or leave them out")
        return self


class AdapterStart(Message):
    """The adapter of a version of another run, of the same tenant, base model and LoRA shape."""

    kind: Literal["adapter"]
    run: RunId
    version: int = Field(ge=1, le=10**9)
    role: RoleName | None = None
    """The role of `run` whose adapter every trained role begins with. None: each with that of its own name."""


Start = Annotated[SftStart | DpoStart | AdapterStart, Field(discriminator="kind")]


class StoredStart(Message):
    """The manifest of uploaded start data: its existence says that every part is there."""

    digest: str
    """Hex sha256 of the question and all lines; names the parts' folder."""
    part_lines: list[int]
    """Lines of each part, in order."""
    created: float
    """Seconds since the epoch, by the clock of the task API that wrote it."""

    @property
    def lines(self) -> int:
        """How many there are."""
        return sum(self.part_lines)


class StartOrigin(Message):
    """Where a start came from, as its version's manifest says."""

    kind: Literal["sft", "dpo", "adapter"]
    run: RunId | None = None
    """The run whose trajectories or adapter it began with; None: uploaded data."""
    version: int | None = None
    """The version of that run whose adapter it is."""
    digest: str | None = None
    """Of the uploaded data."""
    samples: int = 0
    """Conversations, trajectories or pairs that this role learned from."""
    dropped: dict[str, int] = {}
    """Why some of the data was left out -> how many."""


class StartRefusal(Message):
    """Why a learner could not make the start."""

    reason: str
    created: float
    """Seconds since the epoch, learner's clock."""
