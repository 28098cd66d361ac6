"""Probes: prompts by which a replica proves that it serves the adapter the learner wrote (I4).

Each version has its own, from the calls it was trained on. A replica lists only the likeliest tokens, so those of the
new version are compared, whatever came next in the call.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leyden_contracts import Probe
from leyden_learner.policy import Policy
from leyden_learner.rollouts import Rollout

COUNT = 3
LENGTH = 128
"""Tokens of a probe at most."""
PLACES = 12
"""Of a probe, where a replica is asked what may come next."""
LIKELIEST = 5
"""Far fewer than the 20 tokens that a replica lists, so that rounding cannot push one of them off its list."""


def choose_probes(rollouts: Sequence[Rollout], role: str, vocabulary: int, seed: int) -> list[list[int]]:
    """Return `COUNT` different token sequences: the ends of real calls of `role`, or random tokens if they are few.

    The same arguments give the same probes.
    """
    chosen: list[list[int]] = []
    lasts = [own[-1] for rollout in rollouts if (own := [call for call in rollout.calls if call.role == role])]
    for call in lasts:
        packed = call.prompt_token_ids + call.response_token_ids
        tokens = np.frombuffer(packed, dtype="<i4")[-LENGTH:].tolist()
        if len(chosen) < COUNT and len(tokens) >= 2 and tokens not in chosen:
            chosen.append(tokens)
    generator = torch.Generator().manual_seed(seed)
    while len(chosen) < COUNT:
        chosen.append(torch.randint(vocabulary, (32,), generator=generator).tolist())
    return chosen


@dataclass(frozen=True)
class Begun:
    """A probe before the step: what the parent and the base think of every token at its places."""

    token_ids: list[int]
    places: list[int]
    parent: Tensor
    """Shape [P, V]."""
    base: Tensor


def begin_probes(policy: Policy, sequences: Sequence[Sequence[int]]) -> list[Begun]:
    """Ask the parent and the base. Before the step: `policy` is the parent."""
    places = [spread(len(tokens)) for tokens in sequences]
    parent, base = (policy.next_logprobs_each(sequences, places, adapter) for adapter in (True, False))
    return [Begun(list(tokens), *rest) for tokens, *rest in zip(sequences, places, parent, base, strict=True)]


def finish_probes(policy: Policy, begun: Sequence[Begun]) -> list[Probe]:
    """Ask the new version. After the step: `policy` is that version.

    Of its likeliest tokens at each place that one is compared on which it differs most from its parent or the base.
    """
    found = policy.next_logprobs_each([one.token_ids for one in begun], [one.places for one in begun])
    return [_finish(one, own) for one, own in zip(begun, found, strict=True)]


def spread(length: int) -> list[int]:
    """Return up to `PLACES` different places in a sequence, evenly spread, the last one its end."""
    return np.unique(np.linspace(1, length, min(PLACES, length)).round().astype(int)).tolist()


def _finish(begun: Begun, own: Tensor) -> Probe:
    likely = own.topk(min(LIKELIEST, own.shape[1]), dim=-1).indices
    telling = torch.maximum((own - begun.parent).abs(), (own - begun.base).abs()).gather(1, likely)
    chosen = likely.gather(1, telling.argmax(-1, keepdim=True))
    return Probe(
        token_ids=begun.token_ids,
        places=begun.places,
        next_ids=chosen[:, 0].tolist(),
        logprobs=own.gather(1, chosen)[:, 0].tolist(),
        parent_logprobs=begun.parent.gather(1, chosen)[:, 0].tolist(),
        base_logprobs=begun.base.gather(1, chosen)[:, 0].tolist(),
    )
