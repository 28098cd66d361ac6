"""The model: loads it, proves that this engine runs it exactly, and runs prompts and steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from leyden_engine import attention
from leyden_engine.kv_cache import KeyValueCache
from leyden_engine.lora import Adapter, Selection, install

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
"""Between the logits of the engine's two paths and those of a plain forward pass, at start."""


class ModelUnusable(Exception):
    """The model cannot be served."""


class Network:
    """A causal language model with a key-value cache of `rows` sequences. Used by one thread only."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        self._decoder = model.get_decoder()
        self._head = model.get_output_embeddings()
        self._selection = Selection()
        self.layers = install(model, self._decoder, self._selection)
        """Name of each layer that can take an adapter -> (in, out) features."""
        self._cache = KeyValueCache(model.config.num_hidden_layers, rows)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.max_length = int(model.config.max_position_embeddings)
        """Of prompt and reply together, in tokens."""
        self.vocabulary = int(model.config.vocab_size)

    def run(
        self, tokens: Sequence[list[int]], starts: Sequence[int], adapters: Sequence[Adapter | None], first: int
    ) -> Tensor:
        """Add tokens to the cache's rows from `first` on, one row each.

        Args:
            tokens: one or more for each row.
            starts: how many tokens each row holds already.
            adapters: one a row.
            first: row of the cache.

        Returns:
            The logits that follow the last token of each row: float32 of shape [B, V].
        """
        hidden = self._run(tokens, starts, adapters, first)
        if hidden.shape[1] > 1:
            last = torch.tensor([len(row) - 1 for row in tokens], device=self.device)
            hidden = hidden[torch.arange(len(tokens), device=self.device), last]
        else:
            hidden = hidden[:, 0]
        return self._head(hidden).float()

    def score(self, prompt: list[int], adapter: Adapter | None, row: int) -> Tensor:
        """Run one prompt into the cache's `row`; return the logits at each position: float32 of shape [T, V]."""
        return self._head(self._run([prompt], [0], [adapter], row)[0]).float()

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of the cache's row `source` over row `target`."""
        self._cache.copy(source, target, length)

    def wipe(self, row: int) -> None:
        """Make the cache's `row` harmless after a failure."""
        self._cache.wipe(row)

    def _run(
        self, tokens: Sequence[list[int]], starts: Sequence[int], adapters: Sequence[Adapter | None], first: int
    ) -> Tensor:
        self._selection.select(adapters, self.device)
        # Padded on the right: no token sees what comes after it, and what is written there is overwritten later.
        longest = max(map(len, tokens))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in tokens], device=self.device)
        positions = torch.tensor(starts, device=self.device)[:, None] + torch.arange(longest, device=self.device)
        mask = None
        if any(starts):
            seen = self._cache.go_on(first, positions, max(starts) + longest)
            # Additive, so that attention need not convert it once a layer.
            mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, -torch.inf)
        else:
            self._cache.begin(first, len(tokens), longest)
        output = self._decoder(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions.clamp(max=self.max_length - 1),
            past_key_values=self._cache,
            use_cache=True,
        )
        return output.last_hidden_state


def load_network(folder: Path, rows: int, device: str, dtype: str, threads: int) -> Network:
    """Load the model in `folder`. Raises ModelUnusable."""
    torch.set_num_threads(threads)
    transformers_logging.disable_progress_bar()
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ModelUnusable(
            f"device {device}: torch {torch.__version__} sees no GPU here; set LEYDEN_ENGINE_DEVICE=cpu"
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
    except Exception as error:  # transformers documents none; the text is for the person who starts the engine
        raise ModelUnusable(f"{folder} cannot be loaded: {error}") from error
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(model.config, "sliding_window", None):
        raise ModelUnusable(f"{folder} has attention other than full ({', '.join(sorted(kinds))}): serve it with vLLM")
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        raise ModelUnusable(f"{folder} has positions that depend on the longest sequence: serve it with vLLM")
    return _proven(model.to(device).eval(), rows)


def _proven(model: Any, rows: int) -> Network:
    """Return the network, once its cached paths have given the logits of a plain forward pass."""
    with torch.inference_mode():
        return _compared(model, rows)


def _compared(model: Any, rows: int) -> Network:
    ids = [index * 7 % model.config.vocab_size for index in range(1, 9)]
    plain = model(input_ids=torch.tensor([ids], device=model.device)).logits[0].float()
    model.set_attn_implementation(attention.NAME)
    network = Network(model, rows)
    scored = network.score(ids, None, 0)
    parts = [(ids[:3], 0), (ids[3:6], 3), (ids[6:7], 6), (ids[7:], 7)]
    stepped = torch.cat([network.run([part], [start], [None], 0) for part, start in parts])
    for got, wanted in ((scored, plain), (stepped, plain[[2, 5, 6, 7]])):
        if not (got - wanted).abs().max() <= _TOLERANCE[model.dtype]:
            raise ModelUnusable(f"{type(model).__name__} gives other logits here than by itself: serve it with vLLM")
    return network
