"""Settings of `credit: critic`, the learned value of calls."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from leyden_contracts.base import Message


class Critic(Message):
    """A linear head for each trained role, fitted anew after every step to what calls turned out to be worth.

    It reads the base model's state at the end of a call's prompt, so that a state means the same at every version.
    """

    trace: float = Field(default=0.95, ge=0, le=1)
    """λ of generalised advantage estimation (arXiv 1506.02438). 1: a call answers for all that came after it; 0: for
    what the next call was expected to earn. Lower is less noise, and more trust in the head."""
    window: int = Field(default=1024, ge=16, le=4096)
    """The head is fitted to so many of a role's newest calls. They are part of the checkpoint: 4 bytes times the
    model's hidden size each."""
    ridge: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """How strongly the head is held back: as if each call's return had a noise of so many times the variance that the
    head may explain."""


def with_critic(algorithm: Any) -> Any:
    """Fill in what `credit: critic` needs and a user need not write: its settings, the only fitting advantage, and that
    one episode of a task is enough."""
    if isinstance(algorithm, Mapping) and algorithm.get("credit") == "critic":
        given = {name: one for name, one in algorithm.items() if name != "critic" or one is not None}
        return {"critic": Critic(), "advantage": "reinforce++", "least_episodes": 1} | given
    return algorithm
