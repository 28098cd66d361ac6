"""What an agent did around its calls, as its own spans tell it: steps, intermediate rewards, calls of other models.

None of this is needed to train: a trajectory is complete when its calls are. It is for people, for supervised
fine-tuning, and for credit strategies that read rewards of single calls.
"""

from typing import Literal

from pydantic import Field

from leyden_contracts.base import Message

StepKind = Literal["agent", "tool", "retrieval", "other"]


class Step(Message):
    """One span of the agent that is no LLM call: a tool it used, a sub-agent it ran."""

    kind: StepKind
    name: str
    """Of the tool or the agent."""
    span: str = Field(pattern=r"^[0-9a-f]{16}$")
    parent: str = Field(default="", pattern=r"^([0-9a-f]{16})?$")
    """The step, call or text call around it, by span id; empty if there is none in the trajectory."""
    after_call: int = Field(default=0, ge=0)
    """Number of the last call before it; 0 if it came before the first."""
    failed: bool = False
    error: str = ""
    """What the span says of its failure."""
    input: str = ""
    """A tool's arguments, as the agent's instrumentation wrote them (JSON, mostly), cut to 4 KB."""
    output: str = ""
    """A tool's result, cut to 4 KB."""
    duration_ms: float = Field(default=0, ge=0)
    """By the agent's clock."""


class Signal(Message):
    """An intermediate reward of one call (arXiv 2508.03680, section 3.4.2: automatic intermediate rewarding)."""

    call: int = Field(ge=1)
    name: str
    """The rule that made it, or `grader`."""
    value: float = Field(allow_inf_nan=False)


class TextCall(Message):
    """An LLM call that did not pass the gateway: its text is known, its tokens are not."""

    span: str = Field(pattern=r"^[0-9a-f]{16}$")
    parent: str = Field(default="", pattern=r"^([0-9a-f]{16})?$")
    agent: str = ""
    """The agent that made it, if its instrumentation says."""
    model: str = ""
    messages: str
    """What the model was shown: a JSON list of chat messages (`role`, `content`, `tool_calls`, `tool_call_id`)."""
    reply: str
    """What it answered: a JSON list of chat messages."""
    finish_reason: str = ""
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
