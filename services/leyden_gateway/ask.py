"""What an agent asks for, whatever protocol it speaks: in the words of OpenAI's chat completions."""

from dataclasses import dataclass, field
from typing import Any, Literal

from leyden_gateway.errors import ApiError

Endpoint = Literal["chat/completions", "completions"]
"""The two of vLLM's endpoints that give token ids and logprobs in full. Every protocol is translated onto one."""
MOST_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    model: str
    fields: dict[str, Any]
    """What else a replica is asked, `messages` or `prompt` first of all. `msgspec.Raw` values stay what the agent sent.
    Sampling parameters without a field of their own are here under vLLM's names."""
    endpoint: Endpoint = "chat/completions"
    stream: bool = False
    samples: int = 1
    """Replies wanted (`n`). Each is a call of its own."""
    logprobs: bool = False
    """Whether the agent wants to see them; they are recorded in any case."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    note: Any = field(default=None, compare=False)
    """What the protocol has to remember until it answers."""

    def __post_init__(self) -> None:
        """Check what every protocol has. Raises ApiError (400)."""
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise refused(f"`n` must be from 1 to {MOST_SAMPLES}, not {self.samples}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise refused("`max_tokens` must be at least 1")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise refused(f"`temperature` must be from 0 to 2, not {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise refused(f"`top_p` must be above 0 and at most 1, not {self.top_p}")

    @property
    def live(self) -> bool:
        """Whether the reply is passed on while the replica still writes it.

        With tools it is not: vLLM's parsers read malformed calls differently while they stream, and what the agent
        sees must be what was recorded. Then a finished reply is replayed as a stream (decision 0003).
        """
        return self.stream and self.samples == 1 and not self.fields.get("tools")


def refused(message: str) -> ApiError:
    """Return the error for a request that cannot be understood or honoured."""
    return ApiError(400, "invalid_request", message)
