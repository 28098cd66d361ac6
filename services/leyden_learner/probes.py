"""Probes: prompts by which a replica proves that it serves the adapter the learner wrote (I4).

Each version has its own, from the calls it was trained on: what the policy of today finds likely. A replica lists only
likely tokens, and what version 1 found likely may be far from that after a thousand steps.
"""

from collections.abc import Sequence

import numpy as np
import torch

from leyden_contracts import Probe
from leyden_learner.batch import Rollout
from leyden_learner.policy import Policy

COUNT = 3
LENGTH = 128
"""Tokens of a probe at most."""


def choose_probes(rollouts: Sequence[Rollout], vocabulary: int, seed: int) -> list[list[int]]:
    """Return `COUNT` different token sequences: the ends of real calls, or random tokens where those are few.

    The same arguments give the same probes.
    """
    chosen: list[list[int]] = []
    for rollout in rollouts:
        call = rollout.calls[-1]
        packed = call.prompt_token_ids + call.response_token_ids
        tokens = np.frombuffer(packed, dtype="<i4")[-LENGTH:].tolist()
        if len(chosen) < COUNT and len(tokens) >= 2 and tokens not in chosen:
            chosen.append(tokens)
    generator = torch.Generator().manual_seed(seed)
    while len(chosen) < COUNT:
        chosen.append(torch.randint(vocabulary, (32,), generator=generator).tolist())
    return chosen


def begin_probes(policy: Policy, sequences: Sequence[Sequence[int]]) -> list[Probe]:
    """Return the probes as the parent and the base see them. Before the step: `policy` is the parent."""
    probes = []
    for tokens in sequences:
        parent, base = policy.sequence_logprobs(tokens), policy.sequence_logprobs(tokens, adapter=False)
        probes.append(Probe(token_ids=list(tokens), logprobs=parent, parent_logprobs=parent, base_logprobs=base))
    return probes


def finish_probes(policy: Policy, probes: Sequence[Probe]) -> list[Probe]:
    """Return the probes with the logprobs of the new version. After the step: `policy` is that version."""
    return [probe.model_copy(update={"logprobs": policy.sequence_logprobs(probe.token_ids)}) for probe in probes]
