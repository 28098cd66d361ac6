"""One call as the optimizer step needs it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leyden_contracts import Transition


@dataclass(frozen=True, slots=True)
class Sample:
    """Tokens, how they were sampled, and how good they were."""

    tokens: Tensor
    """Prompt and response, int64, shape [P + R]."""
    sampled_logprobs: Tensor
    """Of the response, float32, shape [R]."""
    temperature: float
    advantage: float
    role: str = ""
    group: str = ""
    episode: str = ""
    cut: bool = False
    """The reply ran into its length limit."""

    @property
    def prompt_length(self) -> int:
        """P."""
        return self.tokens.numel() - self.sampled_logprobs.numel()

    @property
    def response(self) -> Tensor:
        """Token ids of the response, shape [R]."""
        return self.tokens[self.prompt_length :]


def make_sample(group: str, call: Transition, advantage: float) -> Sample:
    """Return the sample of a call."""
    ids = [np.frombuffer(packed, dtype="<i4") for packed in (call.prompt_token_ids, call.response_token_ids)]
    logprobs = np.frombuffer(call.response_logprobs, dtype="<f4").astype(np.float32)
    return Sample(
        tokens=torch.from_numpy(np.concatenate(ids).astype(np.int64)),
        sampled_logprobs=torch.from_numpy(logprobs),
        temperature=call.temperature,
        advantage=advantage,
        role=call.role,
        group=group,
        episode=call.episode,
        cut=call.finish_reason == "length",
    )
