"""Writes data/trl.json: what TRL makes of given logprobs, rewards and pairs. Run by `just trl-reference`.

TRL's own trainers compute: only the model's logprobs and the rewards are put in. With `--check`, compares with the file
instead of writing it.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

FILE = Path(__file__).parent / "data/trl.json"
GROUP = 4
LENGTHS = (5, 2, 7, 3)
LONGEST = 8
"""Dr. GRPO's constant: TRL's `max_completion_length`."""

LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon": 0.2},
    "grpo_dual_clip": {"loss_type": "grpo", "epsilon": 0.2, "delta": 1.3},
    "grpo_kl": {"loss_type": "grpo", "epsilon": 0.2, "beta": 0.05, "use_bias_correction_kl": False},
    "grpo_unbiased_kl": {"loss_type": "grpo", "epsilon": 0.2, "beta": 0.05, "use_bias_correction_kl": True},
    "grpo_entropy": {"loss_type": "grpo", "epsilon": 0.2, "entropy_coef": 0.02},
    "bnpo": {"loss_type": "bnpo", "epsilon": 0.2, "epsilon_high": 0.28},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon": 0.2},
    "dapo": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
    "dapo_corrected": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "corrected": True},
    "gspo": {
        "loss_type": "grpo",
        "epsilon": 0.1,
        "epsilon_high": 0.15,
        "importance_sampling_level": "sequence",
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.3},
}
ADVANTAGES: dict[str, dict[str, Any]] = {
    "grpo": {"scale_rewards": "group"},
    "dr_grpo": {"scale_rewards": "none"},
    "gdpo": {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]},
}


def make_inputs() -> dict[str, Any]:
    """Draw what all cases share: nothing here comes from TRL."""
    rng = random.Random(0)
    count = sum(LENGTHS)
    old = [rng.uniform(-3, -0.1) for _ in range(count)]
    return {
        "lengths": list(LENGTHS),
        "longest": LONGEST,
        "current": [value + rng.gauss(0, 0.5) for value in old],
        "old": old,
        "sampled": [value + rng.gauss(0, 0.2) for value in old],
        "base": [value + rng.gauss(0, 0.4) for value in old],
        "entropies": [rng.uniform(0, 2) for _ in range(count)],
        "advantages": [-1.3, 0.7, -0.4, 1.1],
        "weights": [rng.choice([0.0, 0.6, 1.0, 2.0]) for _ in range(count)],
        "rewards": [[rng.choice([0.0, 0.5, 1.0]), rng.uniform(-1, 1)] for _ in range(2 * GROUP)],
        "chosen": [-11.5, -7.0, -20.0],
        "rejected": [-12.0, -5.5, -21.0],
        "base_chosen": [-12.0, -6.5, -15.0],
        "base_rejected": [-11.0, -6.0, -23.0],
    }


def padded(values: list[float]) -> torch.Tensor:
    """Put the tokens of each sample into a row, zeros on the right."""
    return torch.nn.utils.rnn.pad_sequence(list(torch.tensor(values).split(list(LENGTHS))), batch_first=True)


def tiny() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Make a model that says nothing of interest; TRL's trainers want one."""
    words = {"<pad>": 0, "<eos>": 1} | {f"t{i}": i for i in range(2, 32)}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, pad_token_id=0, eos_token_id=1, **shape)), tokenizer


def common(folder: str) -> dict[str, Any]:
    """Return the settings of all trainers."""
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_steps": 10**6}
    plain = {"bf16": False, "gradient_checkpointing": False, "use_cpu": True, "max_steps": 1, "seed": 0}
    return {"output_dir": folder, **quiet, **plain}


def prompts() -> Dataset:
    return Dataset.from_list([{"prompt": "t2 t3"}, {"prompt": "t4 t5"}])


def grpo_trainer(folder: str, rewards: list[list[float]], trainer: type = GRPOTrainer, **settings: Any) -> Any:
    """Make a trainer for two groups; reward function k gives the k-th reward of each sample."""
    model, tokenizer = tiny()
    config = {GRPOTrainer: GRPOConfig, RLOOTrainer: RLOOConfig}[trainer]
    args = config(
        **common(folder),
        **settings,
        per_device_train_batch_size=2 * GROUP,
        num_generations=GROUP,
        max_completion_length=LONGEST,
    )
    functions = [lambda completions, k=k, **_: [row[k] for row in rewards] for k in range(len(rewards[0]))]
    return trainer(model=model, reward_funcs=functions, args=args, processing_class=tokenizer, train_dataset=prompts())


def policy_loss(folder: str, inputs: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Let TRL's GRPOTrainer compute a loss, and the gradient with respect to the logprobs."""
    settings = dict(settings)
    beta, corrected = settings.pop("beta", 0.0), settings.pop("corrected", False)
    trainer = grpo_trainer(folder, [[0.0]] * 2 * GROUP, **settings)
    # Set afterwards: at its start the trainer would load a base model, or look for vLLM.
    trainer.beta, trainer.use_vllm, trainer.vllm_importance_sampling_correction = beta, corrected, corrected
    trainer.model.eval()
    current = padded(inputs["current"]).requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (current, padded(inputs["entropies"]), None)
    mask = padded([1.0] * sum(LENGTHS)).long()
    batch = {
        "prompt_ids": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": mask,
        "completion_mask": mask,
        "advantages": torch.tensor(inputs["advantages"]),
        "old_per_token_logps": padded(inputs["old"]),
        "ref_per_token_logps": padded(inputs["base"]),
        "importance_sampling_ratio": padded(inputs["weights"]),
        "num_items_in_batch": mask.sum(),
    }
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    return {"loss": loss.item(), "gradient": current.grad[mask.bool()].tolist()}


def advantages(folder: str, inputs: dict[str, Any], settings: dict[str, Any], trainer: type = GRPOTrainer) -> list:
    """Let TRL generate, reward and compare; returns the advantages of two groups."""
    rewards = inputs["rewards"]
    if "multi_objective_aggregation" not in settings:
        rewards = [[sum(row)] for row in rewards]
    running = grpo_trainer(folder, rewards, trainer, **settings)
    running.train()
    return list(running._logs["advantages"])


def dpo(folder: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Let TRL's DPOTrainer compute a loss from given logprobs of one-token answers."""
    model, tokenizer = tiny()
    data = Dataset.from_list([{"prompt": "t2", "chosen": "t3", "rejected": "t4"}])
    args = DPOConfig(**common(folder), beta=0.1)
    trainer = DPOTrainer(model=model, ref_model=tiny()[0], args=args, processing_class=tokenizer, train_dataset=data)
    trainer.precompute_ref_logps = True
    trainer.model.eval()
    chosen, rejected = (torch.tensor(inputs[name], requires_grad=True) for name in ("chosen", "rejected"))
    logprobs = torch.cat([chosen, rejected])[:, None]
    nothing = torch.zeros_like(logprobs).detach()
    outputs = SimpleNamespace(
        log_probs=logprobs, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool(), log_sum_sq_probs=nothing
    )
    batch = {
        "input_ids": torch.ones(len(logprobs), 2, dtype=torch.long),
        "attention_mask": torch.ones(len(logprobs), 2, dtype=torch.long),
        "completion_mask": torch.tensor([[0, 1]] * len(logprobs)),
        "ref_chosen_logps": torch.tensor(inputs["base_chosen"]),
        "ref_rejected_logps": torch.tensor(inputs["base_rejected"]),
    }
    loss = trainer._compute_loss(lambda **_: outputs, batch, False)
    loss.backward()
    return {"loss": loss.item(), "gradient": chosen.grad.tolist() + rejected.grad.tolist()}


def make_reference() -> dict[str, Any]:
    inputs = make_inputs()
    with tempfile.TemporaryDirectory() as folder:
        return {
            "made_by": "tests/unit/algorithms/make_trl_reference.py with trl 1.16.0",
            "inputs": inputs,
            "losses": {name: policy_loss(folder, inputs, settings) for name, settings in LOSSES.items()},
            "advantages": {name: advantages(folder, inputs, settings) for name, settings in ADVANTAGES.items()}
            | {"rloo": advantages(folder, inputs, {"normalize_advantages": False, "beta": 0.0}, RLOOTrainer)},
            "dpo": dpo(folder, inputs),
        }


def same(left: Any, right: Any) -> bool:
    """Compare nested numbers within 1e-6."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return abs(left - right) < 1e-6 if isinstance(left, float) else left == right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    made = make_reference()
    if not parser.parse_args().check:
        FILE.write_text(json.dumps(made, indent=1) + "\n")
    elif not same(made, json.loads(FILE.read_text())):
        sys.exit("TRL computes other values than data/trl.json has")
