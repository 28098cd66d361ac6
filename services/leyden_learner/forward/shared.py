"""The fast pass: what samples begin with in common is computed once, nothing is padded, logits live a chunk long."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leyden_learner.forward.attention import NAME, choose_kernel
from leyden_learner.forward.head import token_scores
from leyden_learner.forward.lora import fuse_adapters
from leyden_learner.forward.packing import MicroBatch, pack
from leyden_learner.forward.scores import Scores
from leyden_learner.forward.tree import plant
from leyden_learner.samples import Sample

MODELS = ("gemma", "llama", "mistral", "qwen2", "qwen3")
"""Model types whose attention goes through transformers' interface, and whose logits are the head's product alone."""
_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that depend on a token's position alone; others look at the longest position, too."""


def unfit(model: Any) -> str | None:
    """Say why `SharedForward` would compute something else than the model does; None where it fits."""
    config = model.config
    head = model.get_output_embeddings()
    if config.model_type not in MODELS:
        return f"models of type {config.model_type!r} are not known to fit; those are: {', '.join(MODELS)}"
    if _slides(config):
        return "it has layers of sliding attention"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in _ROPES:
        return f"its rotary embedding is of type {rope!r}"
    if type(head) is not torch.nn.Linear or head.bias is not None or head.weight.requires_grad:
        return "its head is not one frozen matrix"
    return None


def _slides(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return any(kind != "full_attention" for kind in kinds)
    # Mistral names no kinds: where it has a window, all its layers do.
    return bool(getattr(config, "sliding_window", None))


class SharedForward:
    """Computes on a forest of the samples' tokens (see `tree`)."""

    def __init__(self, model: Any, device: torch.device, products: torch.dtype) -> None:
        """Prepare.

        Args:
            model: a causal language model for which `unfit` is None; its attention and its adapters are made to
                compute otherwise.
            device: where the model is.
            products: dtype of attention.
        """
        config = model.config
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._kernel = choose_kernel(device, products, head_size)
        self._model, self._device = model, device
        model.set_attn_implementation(NAME)
        fuse_adapters(model)

    def micro_batches(self, samples: Sequence[Sample], token_limit: int) -> list[MicroBatch]:
        """Cut the samples into passes; a group stays together while it fits."""
        return pack([sample.tokens[:-1] for sample in samples], token_limit)

    def hidden(self, samples: Sequence[Sample]) -> Tensor:
        """Compute the final hidden states that predict the response tokens."""
        # A last token predicts nothing.
        forest = plant([sample.tokens[:-1] for sample in samples])
        hidden = self._model.get_decoder()(
            input_ids=forest.tokens[None].to(self._device),
            position_ids=forest.depths[None].to(self._device),
            use_cache=False,
            tree=self._kernel(forest, self._device),
        ).last_hidden_state[0]
        # The token at position t + 1 is predicted at t.
        pairs = zip(samples, forest.paths, strict=True)
        places = torch.cat([path[sample.prompt_length - 1 :] for sample, path in pairs])
        return hidden.index_select(0, places.to(self._device))

    def scores(self, samples: Sequence[Sample], entropy: bool = False) -> Scores:
        """Compute logprobs, and entropies where asked, of all response tokens."""
        targets = torch.cat([sample.response for sample in samples])
        heat = torch.cat([torch.full((one.response.numel(),), one.temperature) for one in samples])
        return Scores(
            *token_scores(
                self.hidden(samples),
                self._model.get_output_embeddings().weight,
                targets.to(self._device),
                heat.to(self._device),
                entropy,
            )
        )
