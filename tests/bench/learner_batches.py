"""The model and the batches of `just bench learner`; imports torch alone, as TRL's side lives in another environment.

Like the batches that the targets were set with: responses of 32 to 208 tokens of a vocabulary of 2000.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

VOCABULARY, PAD, END = 2000, 0, 1
TURNS, TURNS_PROMPT, TOOL = 5, 256, 64
RANK, ALPHA, LEARNING_RATE = 8, 16, 1e-6
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "pad_token_id": PAD,
    "bos_token_id": None,
    "eos_token_id": END,
}


@dataclass(frozen=True)
class Piece:
    """What the model, or a tool, said."""

    tokens: Tensor
    sampled: bool


@dataclass(frozen=True)
class Episode:
    """A prompt and what followed."""

    prompt: Tensor
    pieces: list[Piece]
    advantage: float


def save_model(folder: Path, shape: dict[str, object] = SHAPE) -> Path:
    """Write a random Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    return folder


def episodes(case: str, prompts: int, group: int) -> list[Episode]:
    """Return a batch: `turns` for conversations of five turns, else the prompt's length."""
    generator = torch.Generator().manual_seed(1)

    def some(count: int) -> Tensor:
        return torch.randint(2, VOCABULARY, (count,), generator=generator)

    def answer() -> Piece:
        return Piece(some(int(torch.randint(32, 209, (1,), generator=generator))), True)

    batch = []
    for _ in range(prompts):
        prompt = some(TURNS_PROMPT if case == "turns" else int(case))
        for _ in range(group):
            pieces = [answer()]
            for _ in range(TURNS - 1 if case == "turns" else 0):
                pieces += [Piece(some(TOOL), False), answer()]
            batch.append(Episode(prompt, pieces, float(torch.randn((), generator=generator))))
    return batch


def response_tokens(batch: list[Episode]) -> int:
    """Return how many tokens are trained on."""
    return sum(piece.tokens.numel() for one in batch for piece in one.pieces if piece.sampled)
