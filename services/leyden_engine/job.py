"""One request as the model thread sees it: what to generate, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from leyden_engine.lora import Adapter


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens, and when to stop."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Ignored when greedy."""
    max_tokens: int = 16
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """End-of-sequence ids included, unless the request ignores them."""
    top_logprobs: int = 0
    """Most likely tokens to report at each step, beside the sampled one."""


Top = list[tuple[int, float]]
"""Token ids and logprobs, most likely first."""


@dataclass(frozen=True, slots=True)
class PromptToken:
    """What the model thought of one prompt token, given those before it."""

    id: int
    logprob: float
    """Natural log, of the plain distribution: no temperature, no top_p."""
    rank: int
    """1 for the most likely token."""
    top: Top


@dataclass(eq=False, slots=True)
class Job:
    """One sequence to generate. After submission the model thread alone writes to it, until `done` is called."""

    prompt: list[int]
    adapter: Adapter | None
    """None: the base model. Held here: unloading its name does not disturb a running job."""
    sampling: Sampling
    prompt_logprobs: int | None = None
    """Most likely tokens to report for each prompt position; None: no prompt logprobs at all."""
    keep_special: bool = False
    """Whether the text shows special tokens (tool parsers may need them)."""
    done: Callable[[], None] = lambda: None
    """Called once, from the model thread, when `finish_reason` or `error` is set."""
    cancelled: bool = False
    """Set by anyone: the result is no longer wanted."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """One for each token, natural log, exact float32 values, of the distribution that was sampled from: after
    temperature and top_p. Greedy: of the distribution at temperature 1."""
    tops: list[Top] = field(default_factory=list)
    prompt_tokens: list[PromptToken] = field(default_factory=list)
    """Of prompt tokens 2..T; empty unless asked for."""
    finish_reason: str = ""
    """`stop` or `length`."""
    stop_reason: str | int | None = None
    """The stop string or stop id that ended it; None for end of sequence and length."""
    error: Exception | None = None
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.sampling.seed)

    @property
    def cached(self) -> int:
        """How many of its tokens the network has run: all but the last one sampled."""
        return len(self.prompt) + len(self.tokens) - 1
