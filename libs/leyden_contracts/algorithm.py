"""How a run's learner turns finished groups into a better policy. What does not fit together is refused."""

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from leyden_contracts.base import Message
from leyden_contracts.critic import Critic, with_critic
from leyden_contracts.selection import Selection

CreditName = Literal["identical", "discounted", "step_rewards", "gigpo", "critic"]
AdvantageName = Literal["grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++_baseline", "gdpo"]
LossName = Literal["ppo_clip", "gspo", "gspo_token", "cispo"]
AverageName = Literal["token_mean", "sequence_mean", "constant"]
CorrectionName = Literal["none", "tis", "mis", "icepop", "geometric"]

CLIPS: dict[str, tuple[float, float]] = {
    "ppo_clip": (0.2, 0.28),
    "gspo": (3e-4, 4e-4),
    "gspo_token": (3e-4, 4e-4),
    "cispo": (1.0, 4.0),
}
"""Loss -> its own bounds: the papers', and for `ppo_clip` DAPO's (arXiv 2503.14476), which leaves more room upwards."""
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "none": (None, None),
    "tis": (None, 2.0),
    "mis": (None, 2.0),
    "icepop": (0.5, 5.0),
    "geometric": (0.99, 1.01),
}
"""Correction -> its own bounds of the ratio; None: it has none on that side."""
_OF_A_GROUP = ("grpo", "dr_grpo", "rloo")
_NEEDS_NO_GROUP = ("reinforce++",)


class Control(StrEnum):
    """Negative controls: runs that must not improve. For checking that a learning claim is honest."""

    NONE = "none"
    SHUFFLED_REWARDS = "shuffled_rewards"
    """Rewards are permuted across the batch before advantages are computed."""
    UNPUBLISHED = "unpublished"
    """The learner trains but never publishes: every episode runs on version 0."""


class LoraShape(Message):
    """The LoRA adapter (arXiv 2106.09685) on all linear layers."""

    rank: int = Field(default=8, ge=1, le=256)
    alpha: int = Field(default=16, ge=1)


class Algorithm(Message):
    """Credit over calls, advantages, the policy objective, and the step. `leyden_algorithms` has each by this name."""

    credit: CreditName = "identical"
    """How an episode's reward is spread over its calls. `identical`: each call gets it whole (LightningRL, arXiv
    2508.03680, section 3.3). `discounted`: less for earlier calls. `step_rewards`: with the intermediate rewards from
    that call on. `gigpo`: with a comparison of calls that were shown the same (arXiv 2505.10978). `critic`: against
    what a learned critic expected of it; that is the baseline, so one episode of a task will do."""
    critic: Critic | None = None
    """For `credit: critic` alone; None is its own settings there."""
    discount: float | None = Field(default=None, gt=0, le=1)
    """From a call to the next; None is the strategy's own. Not for `identical`."""
    step_weight: float | None = Field(default=None, ge=0)
    """How much `gigpo`'s comparison of calls counts; None is 1."""
    advantage: AdvantageName = "grpo"
    """What is compared with what. `grpo`: a group, in its standard deviations (arXiv 2402.03300); `dr_grpo` without
    them (2503.20783); `rloo`: with the others of the group (2402.14740); `reinforce++`: with the whole batch
    (2501.03262), `reinforce++_baseline`: a group, in deviations of the batch; `gdpo`: several rewards apart
    (2601.05242). `credit: critic` has its own baseline, and is normalised over the batch: `reinforce++`, which it is
    given where none is named."""
    compare_roles: Literal["jointly", "apart"] = "jointly"
    """Whether the calls of all trained roles share one comparison, or each role is compared with its own alone."""
    rewards: dict[str, float] = {}
    """Named rewards of the grader -> weights of their sum, which is what is trained on. Empty: the grader's `reward`.
    An episode that lacks one of them is left out."""
    loss: LossName = "ppo_clip"
    """`ppo_clip`: a clipped ratio for each token (arXiv 1707.06347, 2503.14476); `gspo`: one for each reply
    (2507.18071); `cispo`: a clipped weight, that keeps every token's gradient (2506.13585)."""
    clip_low: float | None = Field(default=None, gt=0)
    """The ratio is clipped below at 1 - this; None is the loss's own."""
    clip_high: float | None = Field(default=None, gt=0)
    """The ratio is clipped above at 1 + this; None is the loss's own."""
    average: AverageName = "token_mean"
    """What weighs the same: each token (DAPO), each reply (`sequence_mean`, GRPO), or each token by a `constant` length
    (Dr. GRPO)."""
    average_length: int | None = Field(default=None, ge=1)
    """For `constant`: say, the longest reply allowed, in tokens."""
    entropy_bonus: float = Field(default=0, ge=0)
    """Times the entropy of each token's distribution, taken off the loss."""
    kl: float = Field(default=0, ge=0)
    """Times the estimated KL to the base model, added to the loss."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    correction: CorrectionName = "none"
    """What is done about tokens whose probability differs between the engine that sampled them and the learner: `tis`
    weighs them by a truncated ratio, `mis` and `icepop` (arXiv 2510.18855) drop outliers and weigh the rest,
    `geometric` drops whole replies. Any but `none` costs one more forward pass a step."""
    correction_low: float | None = Field(default=None, gt=0)
    """Bound of the ratio; None is the correction's own."""
    correction_high: float | None = Field(default=None, gt=0)
    learning_rate: float = Field(default=1e-4, ge=0)
    """0 is allowed: a negative control."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    groups_per_step: int = Field(default=8, ge=1)
    """Groups in one optimizer step. One step makes one policy version."""
    least_episodes: int = Field(default=2, ge=1)
    """A group with fewer episodes that can be trained on is left out. Where `credit: critic` names none, it is 1."""
    drop_cut_replies: bool = False
    """Replies that ran into their length limit are compared, but not trained on (DAPO's overlong filtering)."""
    max_staleness: int = Field(default=0, ge=0)
    """How many versions behind the learner a trajectory may be. 0: strictly on-policy."""
    selection: Selection = Selection()
    micro_batch_tokens: int = Field(default=8192, ge=64)
    """Upper bound of tokens in one forward pass (padding included); one longer sequence goes alone."""
    lora: LoraShape = LoraShape()
    control: Control = Control.NONE

    @property
    def clip(self) -> tuple[float, float]:
        """How far below and above 1 the ratio may go."""
        low, high = CLIPS[self.loss]
        return self.clip_low or low, self.clip_high or high

    @property
    def correction_bounds(self) -> tuple[float | None, float | None]:
        """Between what the correction keeps the ratio."""
        low, high = BOUNDS[self.correction]
        return self.correction_low or low, self.correction_high or high

    @property
    def compares_groups(self) -> bool:
        """Whether one episode alone has no advantage."""
        return self.advantage not in _NEEDS_NO_GROUP

    @property
    def most_groups(self) -> int:
        """How many groups one step consumes at most."""
        if not self.selection.dynamic:
            return self.groups_per_step
        return self.selection.most_groups_per_step or 4 * self.groups_per_step

    @model_validator(mode="after")
    def _selection_fits(self) -> Self:
        if self.selection.dynamic and not self.compares_groups:
            raise ValueError(
                f"`advantage: {self.advantage}` learns from groups with equal rewards too: choose another one, or "
                "leave `selection.dynamic` out"
            )
        if self.selection.dynamic and self.most_groups <= self.groups_per_step:
            raise ValueError("`selection.most_groups_per_step` must be above `groups_per_step`: raise it")
        return self

    @model_validator(mode="before")
    @classmethod
    def _critic_has_settings(cls, data: Any) -> Any:
        return with_critic(data)

    @model_validator(mode="after")
    def _settings_are_used(self) -> Self:
        if self.critic and self.credit != "critic":
            raise ValueError("`critic` is for `credit: critic`: leave it out")
        if self.discount is not None and self.credit == "identical":
            raise ValueError("`discount` means nothing to `credit: identical`: leave it out")
        if self.step_weight is not None and self.credit != "gigpo":
            raise ValueError("`step_weight` is for `credit: gigpo`: leave it out")
        if (self.average == "constant") != (self.average_length is not None):
            raise ValueError("`average: constant` and `average_length` go together: give both or neither")
        low, high = BOUNDS[self.correction]
        if (self.correction_low and low is None) or (self.correction_high and high is None):
            raise ValueError(f"`correction: {self.correction}` has no such bound: leave it out")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.credit == "critic" and self.advantage != "reinforce++":
            raise ValueError("`credit: critic` is its own baseline: leave `advantage` out, or set it to reinforce++")
        if self.credit == "gigpo" and self.advantage not in _OF_A_GROUP:
            raise ValueError(f"`credit: gigpo` compares inside groups: set `advantage` to {', '.join(_OF_A_GROUP)}")
        if self.advantage == "gdpo" and len(self.rewards) < 2:
            raise ValueError("`advantage: gdpo` is for several rewards: name two or more in `rewards`")
        if self.advantage == "gdpo" and self.credit not in ("identical", "discounted"):
            raise ValueError("`advantage: gdpo` keeps rewards apart: set `credit` to identical or discounted")
        if self.loss != "cispo" and self.clip[0] >= 1:
            raise ValueError("`clip_low` must be below 1: a ratio is never negative")
        if self.compares_groups and self.least_episodes < 2:
            raise ValueError(f"`advantage: {self.advantage}` compares episodes: set `least_episodes` to 2 or more")
        return self
