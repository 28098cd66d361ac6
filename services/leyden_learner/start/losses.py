"""The loss of one optimizer step, a pass at a time: supervised, or by preferences."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from leyden_algorithms import Pairs, dpo_loss, dpo_metrics, sequence_logprobs, sft_loss
from leyden_contracts import DpoStart
from leyden_learner.policy import Policy
from leyden_learner.samples import Sample
from leyden_learner.start.units import Example, Pair

Share = tuple[Tensor, dict[str, float]]
"""What a pass adds to the step's loss, with its gradient, and to the step's measures."""


def sft_shares(policy: Policy, batch: Sequence[Example], token_limit: int) -> Iterator[Share]:
    """Yield the mean loss of all response tokens, pass by pass."""
    samples = [sample for example in batch for sample in example.samples]
    total = sum(sample.response.numel() for sample in samples)
    for part in policy.micro_batches(samples, token_limit):
        logprobs_T = policy.response_logprobs([samples[i] for i in part.samples])
        # What is not the assistant's stands in the prompts: of the responses, every token counts.
        yield sft_loss(logprobs_T, torch.ones_like(logprobs_T, dtype=torch.bool)).sum() / total, {}


def dpo_shares(policy: Policy, batch: Sequence[Pair], token_limit: int, start: DpoStart) -> Iterator[Share]:
    """Yield the mean loss of all pairs, pass by pass; a pair is never cut."""
    for pairs in _passes(batch, token_limit):
        compared, weight = _compare(policy, pairs), len(pairs) / len(batch)
        loss = dpo_loss(compared, beta=start.beta, smoothing=start.smoothing).mean() * weight
        measures = dpo_metrics(compared, beta=start.beta)
        yield loss, {name: value * weight for name, value in measures.items()}


def _compare(policy: Policy, pairs: Sequence[Pair]) -> Pairs:
    """Sum the logprobs of both sides of each pair, under the policy and under the base."""
    samples = [sample for pair in pairs for sample in pair.samples]
    sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    side_S = torch.repeat_interleave(torch.tensor([len(side) for side in sides]))
    current = _by_side(policy.response_logprobs(samples), samples, side_S)
    base = _by_side(policy.frozen_logprobs(samples, adapter=False), samples, side_S)
    return Pairs(current[0::2], current[1::2], base[0::2], base[1::2])


def _by_side(logprobs_T: Tensor, samples: Sequence[Sample], side_S: Tensor) -> Tensor:
    lengths_S = torch.tensor([sample.response.numel() for sample in samples], device=logprobs_T.device)
    sums_S = sequence_logprobs(logprobs_T, lengths_S)
    sides = sums_S.new_zeros(int(side_S[-1]) + 1)
    return sides.index_add(0, side_S.to(sums_S.device), sums_S)


def _passes(batch: Sequence[Pair], token_limit: int) -> Iterator[Sequence[Pair]]:
    """Cut the batch into runs of neighbours of at most `token_limit` tokens; one larger pair goes alone."""
    ends = list(accumulate(sum(sample.tokens.numel() for sample in pair.samples) for pair in batch))
    begun, before = 0, 0
    for place, end in enumerate(ends):
        if place > begun and end - before > token_limit:
            yield batch[begun:place]
            begun, before = place, ends[place - 1]
    yield batch[begun:]
