"""The model: loads it, proves that this engine runs it exactly, and runs prompts and steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

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

    def prefill(self, prompts: Sequence[list[int]], adapters: Sequence[Adapter | None], first: int) -> Tensor:
        """Run whole prompts into the cache's rows from `first` on.

        Returns:
            The logits that follow each prompt: float32 of shape [B, V].
        """
        hidden = self._run_prompts(prompts, adapters, first)
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        return self._head(hidden[torch.arange(len(prompts), device=self.device), last]).float()

    def score(self, prompt: list[int], adapter: Adapter | None, row: int) -> Tensor:
        """Run one prompt into the cache's `row`; return the logits at each position: float32 of shape [T, V]."""
        return self._head(self._run_prompts([prompt], [adapter], row)[0]).float()

    def step(self, tokens: list[int], positions: list[int], adapters: Sequence[Adapter | None]) -> Tensor:
        """Add one token to each of the cache's first rows.

        Args:
            tokens: one a row.
            positions: how many tokens each row holds so far.
            adapters: one a row.

        Returns:
            The logits that follow: float32 of shape [B, V].
        """
        self._selection.select(adapters, self.device)
        where = torch.tensor(positions, device=self.device)
        seen = self._cache.append(where)
        # Additive, so that attention need not convert it once a layer.
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, -torch.inf)
        output = self._decoder(
            input_ids=torch.tensor(tokens, device=self.device)[:, None],
            attention_mask=mask,
            position_ids=where[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        return self._head(output.last_hidden_state[:, -1]).float()

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of the cache's row `source` over row `target`."""
        self._cache.move(source, target, length)

    def wipe(self, row: int) -> None:
        """Make the cache's `row` harmless after a failure."""
        self._cache.wipe(row)

    def _run_prompts(self, prompts: Sequence[list[int]], adapters: Sequence[Adapter | None], first: int) -> Tensor:
        self._selection.select(adapters, self.device)
        self._cache.fill(first)
        # Padded on the right: under a causal mask no token sees what comes after it.
        longest = max(map(len, prompts))
        padded = [prompt + [0] * (longest - len(prompt)) for prompt in prompts]
        ids = torch.tensor(padded, device=self.device)
        output = self._decoder(input_ids=ids, past_key_values=self._cache, use_cache=True)
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
    return _proven(model.to(device).eval(), rows)


def _proven(model: Any, rows: int) -> Network:
    """Return the network, once its cached paths have given the logits of a plain forward pass."""
    with torch.inference_mode():
        return _compared(model, rows)


def _compared(model: Any, rows: int) -> Network:
    ids = [index * 7 % model.config.vocab_size for index in range(1, 9)]
    plain = model(input_ids=torch.tensor([ids], device=model.device)).logits[0].float()
    network = Network(model, rows)
    scored = network.score(ids, None, 0)
    stepped = torch.cat(
        [network.prefill([ids[:4]], [None], 0), *(network.step([ids[n]], [n], [None]) for n in range(4, 8))]
    )
    for got, wanted in ((scored, plain), (stepped, plain[3:])):
        if (got - wanted).abs().max() > _TOLERANCE[model.dtype]:
            raise ModelUnusable(f"{type(model).__name__} gives other logits here than by itself: serve it with vLLM")
    return network
