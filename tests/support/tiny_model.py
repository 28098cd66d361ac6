"""Tiny Llamas with random weights, made on the spot, and LoRA adapters for them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TEMPLATE = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_model(
    folder: Path,
    *,
    hidden: int = 64,
    layers: int = 2,
    context: int = 256,
    seed: int = 0,
    special_tags: bool = False,
) -> Path:
    """Write a random Llama and a byte-level tokenizer with a chat template; returns `folder`.

    Tool tags are special tokens if `special_tags`, as in some models: decoded texts lack them unless asked to keep.
    """
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[PAD, START, END], initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(["What is 37 + 58? The answer is 95."] * 20, trainer)
    core.add_tokens(
        [AddedToken(tag, special=special_tags, normalized=False) for tag in ("<tool_call>", "</tool_call>")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=END, pad_token=PAD, additional_special_tokens=[START]
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=context,
        # Wide, so that a token's probability is far from one over the vocabulary and errors show.
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_adapter(model: Path, folder: Path, *, seed: int = 1, rank: int = 4, std: float = 0.2, **more: object) -> Path:
    """Write a random LoRA adapter that changes what the model says; returns `folder`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    settings = {"r": rank, "lora_alpha": 2 * rank, "target_modules": LINEARS, "task_type": "CAUSAL_LM", **more}
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(**settings))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=std)
    adapted.save_pretrained(folder)
    return folder


def teach(model: Path, prompt: str, reply: str, steps: int = 80) -> None:
    """Train the model until it answers `prompt` with `reply`, which ends the sequence, and nothing else."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model)
    start = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([start + tokenizer(reply + END, add_special_tokens=False)["input_ids"]])
    labels = ids.clone()
    labels[:, : len(start)] = -100
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        network(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    network.save_pretrained(model)


def teacher_forced(model: Path, adapter: Path | None, prompt: list[int], reply: list[int]) -> "torch.Tensor":
    """Return transformers' and peft's own logits for each token of `reply`: float32 of shape [R, V]."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter:
        network = PeftModel.from_pretrained(network, adapter)
    with torch.inference_mode():
        return network.eval()(input_ids=torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
