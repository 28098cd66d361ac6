"""A pass without samples, which a process makes that has none left where layers are sharded."""

from itertools import product

import pytest
import torch

from leyden_algorithms import Tokens, Totals
from leyden_contracts import Algorithm
from leyden_contracts.algorithm import BOUNDS, CLIPS
from leyden_learner.forward import MicroBatch
from leyden_learner.objective import Objective
from leyden_learner.step_tokens import StepTokens
from support.forest import make_samples

AVERAGES = ({"average": "token_mean"}, {"average": "sequence_mean"}, {"average": "constant", "average_length": 5})


@pytest.mark.parametrize(("loss", "correction"), product(CLIPS, BOUNDS))
def test_it_adds_nothing_to_any_objective(loss: str, correction: str):
    step = StepTokens(make_samples(1, 2))
    empty = torch.zeros(0, requires_grad=True)

    for average in AVERAGES:
        algorithm = Algorithm.model_validate(
            {"loss": loss, "correction": correction, "kl": 0.1, "entropy_bonus": 0.1, **average}
        )
        tokens = step.tokens(MicroBatch((), 0), empty)
        assert isinstance(tokens, Tokens)
        share = Objective(algorithm).share(tokens, Totals(tokens=9, samples=2), empty.detach(), empty * 1)
        share.backward()  # which all processes must be able to do

        assert share.item() == 0
        assert empty.grad is not None
    assert step.own(MicroBatch((), 0)) == []
