"""The central data type: a `Transition` is one LLM call as reinforcement learning sees it.

Agent Lightning (arXiv 2508.03680, section 3.1) models an agent's execution as a Markov decision process: the state is
what the LLM was shown, the action is everything it answered in one call, and the transition carries the reward that
credit assignment gives to that call. `leyden_traces` makes these from spans; `leyden_learner` trains on them.

Token ids and logprobs are packed little-endian bytes, not lists: they are copied many times and read once.
"""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from leyden_contracts.base import Message
from leyden_contracts.episode import Purpose
from leyden_contracts.ids import ObjectId, RoleName, RunId
from leyden_contracts.step import Signal, Step, TextCall


class Call(Message):
    """The identity of one LLM invocation inside an attempt."""

    run: RunId
    episode: ObjectId
    attempt: int
    number: int
    """From 1, in the order in which replies left the gateway."""
    role: RoleName
    policy_version: int
    """The adapter version that produced the tokens; 0 is the base model."""


class Transition(Call):
    """One call with its tokens, exactly as the engine made them."""

    prompt_token_ids: bytes
    """int32 little-endian, shape [P]."""
    response_token_ids: bytes
    """int32 little-endian, shape [R]. Tool-call and end-of-turn tokens included."""
    response_logprobs: bytes
    """float32 little-endian, shape [R], natural log, of the distribution that was sampled from."""
    temperature: float
    """As really used by the engine."""
    finish_reason: str
    """`stop`, `length`, `tool_calls`, or `cut`: the agent hung up, and these are the tokens that it got."""
    response_id: str
    """The engine's id of the reply; finds the same call in the engine's own log."""
    replica: str
    """Which replica answered."""
    start_ns: int = 0
    """When the request reached the gateway, by its clock, nanoseconds since the epoch. Nothing is ordered by it."""
    end_ns: int = 0
    """When the reply was about to leave."""
    parent: str = Field(default="", pattern=r"^([0-9a-f]{16})?$")
    """Span id of the step or text call around it; before assembly, of the span that the agent's request named."""
    agent: str = ""
    """The agent that made it, if the agent's own spans say; known from assembly on."""


_FIELDS = set(Transition.model_fields)
_new = Transition.__new__
_set_fields, _set_names, _set_extra, _set_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def checked_transition(fields: dict[str, Any]) -> Transition:
    """Return the transition of `fields`, which are all there and have been checked: they are not checked again.

    It does what pydantic's `model_construct` does in a tenth of its time.
    """
    made = _new(Transition)
    _set_fields(made, fields)
    _set_names(made, _FIELDS)
    _set_extra(made, None)
    _set_private(made, None)
    return made


class Verdict(StrEnum):
    """Whether a trajectory may be trained on."""

    COMPLETE = "complete"
    """Every call the gateway counted is here."""
    INCOMPLETE = "incomplete"
    """Some are missing; never trained on."""
    TEXT_ONLY = "text_only"
    """No call passed the gateway, though the agent's spans tell of some: for reading and supervised fine-tuning."""


class Trajectory(Message):
    """The ordered transitions of an episode's winning attempt."""

    run: RunId
    group: ObjectId
    episode: ObjectId
    task: ObjectId
    attempt: int
    purpose: Purpose
    reward: float
    rewards: dict[str, float] = {}
    verdict: Verdict
    transitions: tuple[Transition, ...]
    """By call number, 1 to the number of calls."""
    output: Any = None
    """What the agent returned (JSON), cut to 16 KB."""
    steps: tuple[Step, ...] = ()
    """Tools and sub-agents, in the order in which they ended."""
    signals: tuple[Signal, ...] = ()
    """Intermediate rewards, by call and name."""
    texts: tuple[TextCall, ...] = ()
    """Calls that did not pass the gateway."""
