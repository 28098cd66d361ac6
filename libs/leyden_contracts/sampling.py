"""How trained roles sample."""

from typing import Literal, Self

from pydantic import Field, model_validator

from leyden_contracts.base import Message


class Bounds(Message):
    """The agent chooses, within these; what is out of them is moved to the nearer end."""

    low: float = Field(ge=0, le=2)
    high: float = Field(ge=0, le=2)
    default: float = Field(default=1.0, ge=0, le=2)
    """For an agent that says nothing; it is bounded too."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"`low` is above `high` ({self.low} > {self.high}): swap them")
        return self


class Sampling(Message):
    """How trained roles sample. A number replaces what the agent asked for; bounds leave it a choice."""

    temperature: float | Bounds = 1.0
    """For training, above 0. The one really used is recorded with each call, and importance ratios use it."""
    eval_temperature: float | Bounds = 1.0
    """For evaluation episodes. 0 is greedy."""
    top_p: Literal[1] = 1
    """For training only the whole distribution: the learner could not compute the ratio of a token that its own nucleus
    leaves out."""
    eval_top_p: float | Bounds = 1.0
    max_tokens: int = Field(default=512, ge=1)
    """Upper bound; an agent may ask for less."""
    eval_max_tokens: int | None = Field(default=None, ge=1)
    """The same for evaluation; None: `max_tokens`."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_range("temperature", self.temperature, 0, 2, above=True)
        _check_range("eval_temperature", self.eval_temperature, 0, 2, above=False)
        _check_range("eval_top_p", self.eval_top_p, 0, 1, above=True)
        return self


def _check_range(name: str, rule: "float | Bounds", low: float, high: float, *, above: bool) -> None:
    ends = [rule.low, rule.high] if isinstance(rule, Bounds) else [rule]
    if not all((low < end if above else low <= end) and end <= high for end in ends):
        raise ValueError(f"`sampling.{name}` must be {'above' if above else 'at least'} {low} and at most {high}")
