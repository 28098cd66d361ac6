"""The forward pass of a step: logprobs of all response tokens, with what samples have in common computed once.

`tree` lays samples out so that a common beginning stands there once; `attention` lets each token look at its own
path only; `head` turns hidden states into logprobs; `packing` cuts a batch into passes. `shared` puts these together,
`padded` is the plain pass for models that they do not fit, and what the tests compare with.
"""

from leyden_learner.forward.packing import MicroBatch, share
from leyden_learner.forward.padded import PaddedForward
from leyden_learner.forward.scores import Forward, Scores
from leyden_learner.forward.shared import SharedForward, unfit

__all__ = ["Forward", "MicroBatch", "PaddedForward", "Scores", "SharedForward", "share", "unfit"]
