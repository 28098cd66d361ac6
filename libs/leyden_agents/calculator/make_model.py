"""Make the tiny Llama that ships with the demo: tokenizer, chat template, supervised warm-up.

    python -m leyden_agents.calculator.make_model --out DIR --seed N

Takes minutes on one core. Needs torch and transformers; nothing else in this package does.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from leyden_agents.calculator.agent import CALCULATOR
from leyden_agents.calculator.demonstrations import Messages, demonstration

TEMPLATE = Path(__file__).parent / "chat_template.jinja"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TOOL_TAGS = ("<tool_call>", "</tool_call>")

CONTEXT = 512
VOCABULARY = 384
CLEAN_STEPS = 1000
"""The first steps show the good habit only: copying operands is the hard part."""
STEPS = 3000
BATCH = 32
LEARNING_RATE = 2e-3

Example = tuple[list[int], list[bool]]
"""Token ids, and which of them the assistant said. Both of shape [T]."""


def make_tokenizer(rng: Random) -> Any:
    """Return a byte-level tokenizer, lossless for any text, whose digits and signs are tokens of their own."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.decoder = decoders.ByteLevel()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|[-+]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(TOOL_TAGS),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_pieces(rng), trainer)
    # Not special: engines must keep them in the decoded text to find the call.
    core.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TOOL_TAGS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE.read_text()
    return tokenizer


def _pieces(rng: Random) -> Iterator[str]:
    # Roles and contents apart: no token may span the border between a prompt and a reply.
    yield from ["system\n", "user\n", "assistant\n", "tool\n", "Tools:", " calculator"] * 500
    for _ in range(3000):
        for message in demonstration(rng):
            yield (message["content"] or "").replace(TOOL_TAGS[0], "").replace(TOOL_TAGS[1], "")
            for call in message.get("tool_calls", ()):
                expression = call["function"]["arguments"]["expression"]
                yield f'\n{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}\n'


def make_example(tokenizer: Any, messages: Messages) -> Example:
    """Return the conversation as the engine would see it, call by call: each prompt extends what was generated."""
    ids: list[int] = []
    said: list[bool] = []
    text = ""
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = _render(tokenizer, messages[:index], reply=True)
        rendered = _render(tokenizer, messages[: index + 1], reply=False)
        reply = rendered[len(prompt) : rendered.rindex(END) + len(END)]
        for part, spoken in ((prompt[len(text) :], False), (reply, True)):
            tokens = tokenizer(part, add_special_tokens=False)["input_ids"]
            ids += tokens
            said += [spoken] * len(tokens)
        text = prompt + reply
    return ids, said


def _render(tokenizer: Any, messages: Messages, reply: bool) -> str:
    return tokenizer.apply_chat_template(messages, tools=[CALCULATOR], add_generation_prompt=reply, tokenize=False)


def make_network(tokenizer: Any) -> Any:
    """Return a randomly initialised Llama of about 0.6 million parameters."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model


def warm_up(model: Any, tokenizer: Any, rng: Random) -> None:
    """Teach `model` the demonstrations: token-level cross entropy on what the assistant said."""
    import torch

    clean = [make_example(tokenizer, demonstration(rng, clean=True)) for _ in range(10000)]
    mixed = [make_example(tokenizer, demonstration(rng)) for _ in range(24000)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    for step in range(1, STEPS + 1):
        rate = LEARNING_RATE * min(1, step / 30) * (1 - 0.97 * step / STEPS)
        optimizer.param_groups[0]["lr"] = rate
        loss = _loss(model, tokenizer, rng.sample(clean if step <= CLEAN_STEPS else mixed, BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}/{STEPS}: loss {loss.item():.4f}", flush=True)


def _loss(model: Any, tokenizer: Any, batch: list[Example]) -> Any:
    import torch

    width = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), width), tokenizer.pad_token_id)
    said = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, (tokens, spoken) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        said[row, : len(tokens)] = torch.tensor(spoken)
    logits = model(input_ids=ids).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits[said[:, 1:]], ids[:, 1:][said[:, 1:]])


def main() -> None:
    """Make the model and save it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    import torch

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = Random(args.seed)
    tokenizer = make_tokenizer(rng)
    model = make_network(tokenizer)
    warm_up(model, tokenizer, rng)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    size = sum(file.stat().st_size for file in args.out.iterdir())
    print(f"{args.out}: {model.num_parameters() / 1e6:.2f} M parameters, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
