"""A tiny Llama with random weights that has never been taught anything."""

from itertools import product
from pathlib import Path
from random import Random

VOCABULARY = 64
CHOICES = 4
"""A token stands for the choice that it leaves when divided by this, so an untaught model is right once in four."""


def save(folder: Path, seed: int) -> Path:
    """Write the model of this seed; returns its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        # Wide, so that the model tells tokens apart; then its replies depend on what it is shown.
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def split(sizes: tuple[int, ...], held_out: float, rng: Random) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Part all tasks (one clue of each kind) into those to train on and those held out.

    Every clue is trained on: tasks whose clues are all equal stay, whatever the draw.
    """
    every = list(product(*(range(size) for size in sizes)))
    free = [task for task in every if len(set(task)) > 1]
    kept_back = set(rng.sample(free, int(held_out * len(every))))
    return [task for task in every if task not in kept_back], sorted(kept_back)
