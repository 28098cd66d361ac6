"""`just gpu-learner`: a training step on a GPU, beside TRL's and beside the arithmetic floor.

Random models of the shapes of SmolLM2-135M and Qwen2.5-1.5B, bfloat16, LoRA on all linear layers, P=512, groups of 8.
The floor is the time that the step's large matrix products alone would take, at the rate that this GPU reaches on
one of them: forward and backward to the inputs of every layer for each token once, and the head for each response
token. Prints a table; where there is no GPU, says so. TRL takes part where .venv-trl has a torch that sees the GPU.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from learner import TRL_PYTHON, Bench, Side
from learner_batches import END, PAD, episodes, response_tokens, save_model

COMMON = {"tie_word_embeddings": True, "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": END}
SHAPES = {
    "SmolLM2-135M": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
    },
    "1.5B": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
    },
}


def floor_s(shape: dict[str, int], fed: int, responses: int, rate: float) -> float:
    """Return the seconds of the large products alone, at `rate` operations a second."""
    wide, inner = shape["hidden_size"], shape["intermediate_size"]
    keys = wide * shape["num_key_value_heads"] // shape["num_attention_heads"]
    layer = 2 * wide * wide + 2 * wide * keys + 3 * wide * inner
    # Two operations a weight, forward and backward.
    return 4 * (fed * layer * shape["num_hidden_layers"] + responses * wide * shape["vocab_size"]) / rate


def matmul_rate(size: int = 8192, rounds: int = 20) -> float:
    """Return operations a second of a large bfloat16 product."""
    one = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    one @ one
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(rounds):
        one @ one
    torch.cuda.synchronize()
    return 2 * size**3 * rounds / (time.perf_counter() - started)


def row(name: str, who: str, side: Side, tokens: int) -> str:
    """Return a line of the table."""
    return f"| {name} | {who} | {side.cpu_s:.3f} | {tokens / side.cpu_s:,.0f} | {side.steps[0]['peak_mb']:,.0f} |"


def measure(name: str, rate: float, asked: argparse.Namespace) -> None:
    """Print one model's lines."""
    tokens = response_tokens(episodes("512", asked.prompts, asked.group))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(save_model(Path(folder), SHAPES[name] | COMMON), asked, device="cuda")
        sides = {"Leyden": stack.enter_context(bench.own("512", "shared", 8192))}
        if TRL_PYTHON.exists():
            sides["TRL"] = stack.enter_context(bench.trl("512"))
        bench.rounds(*sides.values())
        for who, side in sides.items():
            print(row(name, who, side, tokens))
        floor = floor_s(SHAPES[name], sides["Leyden"].fed, tokens, rate)
        print(f"| {name} | floor | {floor:.3f} | {tokens / floor:,.0f} | |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=4, help="of a batch")
    parser.add_argument("--group", type=int, default=8, help="responses to each prompt")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no GPU on this machine: nothing was measured.")
        return
    print(f"{torch.cuda.get_device_name()}, `just gpu-learner`\n\n| model | trainer | s a step | tokens/s | peak MiB |")
    print("|---|---|---|---|---|")
    rate = matmul_rate()
    for name in SHAPES:
        measure(name, rate, asked)


if __name__ == "__main__":
    main()
