"""What a forward pass gives."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from leyden_learner.forward.packing import MicroBatch
from leyden_learner.samples import Sample


class Scores(NamedTuple):
    """Of the samples' response tokens, sample by sample, each at its call's temperature: float32, shape [sum of R]."""

    logprobs: Tensor
    entropy: Tensor | None
    """Of the distribution that the token was drawn from, nats; None where it was not asked for."""


class Forward(Protocol):
    """A way to compute the scores of samples; all ways give the same numbers."""

    def micro_batches(self, samples: Sequence[Sample], token_limit: int) -> list[MicroBatch]:
        """Cut the samples into passes that feed at most `token_limit` tokens each; one long sample goes alone."""
        ...

    def hidden(self, samples: Sequence[Sample]) -> Tensor:
        """Compute in one pass the final hidden states that predict the response tokens, shape [sum of R, H]."""
        ...

    def scores(self, samples: Sequence[Sample], entropy: bool = False) -> Scores:
        """Compute in one pass; both results carry gradients."""
        ...
