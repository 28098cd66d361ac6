"""From hidden states to logprobs, a chunk of logits at a time.

The head is frozen, so the gradient of a logprob with respect to its hidden state is known in the forward pass:
(W[target] - sum over v of p(v) W[v]) / temperature. That vector is kept instead of the logits: memory grows with tokens
times hidden size, not with tokens times vocabulary, and the backward pass is one product.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22
"""Logits of one chunk: 16 MB in float32."""


def token_scores(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return each target's logprob, and the entropy of its distribution where that is asked for.

    Args:
        hidden: shape [N, D]; carries the gradient.
        weight: the frozen head, shape [V, D].
        targets: token ids, shape [N].
        temperatures: the logits are divided by these, shape [N].
        entropy: whether to compute the entropy, too.

    Returns:
        Two of shape [N], at least float32, in nats; both carry gradients.
    """
    logprobs, entropies = _Head.apply(hidden, weight, targets, temperatures, entropy)
    return logprobs, entropies if entropy else None


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, entropy: bool
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        hidden_dtype, hidden = hidden.dtype, hidden.to(weight.dtype)
        count = hidden.shape[0]
        logprobs, entropies = (hidden.new_zeros(count, dtype=exact) for _ in range(2))
        slope = torch.empty_like(hidden)
        entropy_slope = torch.empty_like(hidden) if entropy else hidden.new_empty(0)
        size = max(1, CHUNK_ELEMENTS // weight.shape[0])
        for start in range(0, count, size):
            part = slice(start, min(start + size, count))
            heat = temperatures[part, None].to(exact)
            logp = torch.mm(hidden[part], weight.T).to(exact).div_(heat).log_softmax(-1)
            logprobs[part] = logp.gather(1, targets[part, None])[:, 0]
            prob = logp.exp() if entropy else logp.exp_()
            if entropy:
                # d H / d logits = -p (log p + H)
                entropies[part] = -(prob * logp).sum(1)
                inner = (logp + entropies[part, None]).mul_(prob)
                entropy_slope[part] = torch.mm(inner.to(weight.dtype), weight).div_(-heat)
            mean = torch.mm(prob.to(weight.dtype), weight)
            slope[part] = (weight[targets[part]] - mean).div_(heat)
        ctx.save_for_backward(slope, entropy_slope)
        ctx.hidden_dtype = hidden_dtype
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        slope, entropy_slope = ctx.saved_tensors
        result = slope * grads[0][:, None]
        if entropy_slope.numel():
            result = result + entropy_slope * grads[1][:, None]
        return result.to(ctx.hidden_dtype), None, None, None, None
