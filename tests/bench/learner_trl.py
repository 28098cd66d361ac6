"""TRL's side: `.venv-trl/bin/python learner_trl.py MODEL CASE PROMPTS GROUP MICRO_BATCH STEPS` (see learner_side).

TRL 1.16.0's GRPOTrainer from on_step_begin to on_step_end: its compute_loss and backward over micro-batches, clipping,
AdamW. Its fair settings on a CPU: no bf16 and no gradient checkpointing, which are its defaults and cost it 70 times as
much here. Generation is replaced: the completions are given, with turns merged into one row and tools masked out.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import learner_side
import torch
from learner_batches import ALPHA, END, LEARNING_RATE, PAD, RANK, VOCABULARY, Episode, episodes


def padded(batch: list[Episode]) -> dict[str, torch.Tensor]:
    """Return the batch as TRL prepares it: prompts padded on the left, completions on the right."""
    completions = [torch.cat([piece.tokens for piece in one.pieces]) for one in batch]
    sampled = [torch.cat([torch.full_like(piece.tokens, piece.sampled) for piece in one.pieces]) for one in batch]

    def right(rows: list[torch.Tensor], value: int = 0) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)

    def left(rows: list[torch.Tensor]) -> torch.Tensor:
        return right([row.flip(0) for row in rows]).flip(1)

    mask = right([torch.ones_like(one) for one in completions])
    tools = right(sampled, 1)
    inputs = {
        "prompt_ids": left([one.prompt for one in batch]),
        "prompt_mask": left([torch.ones_like(one.prompt) for one in batch]),
        "completion_ids": right(completions, PAD),
        "completion_mask": mask,
        "advantages": torch.tensor([one.advantage for one in batch]),
        "num_items_in_batch": (mask * tools).sum(),
    }
    return inputs | ({"tool_mask": tools} if any(len(one.pieces) > 1 for one in batch) else {})


def tokenizer() -> Any:
    """Return one word for each token: TRL asks for a tokenizer."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {{PAD: "<pad>", END: "<end>"}.get(i, f"t{i}"): i for i in range(VOCABULARY)}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")


def main(model: Path, case: str, prompts: int, group: int, micro: int, steps: int) -> None:
    """Serve steps."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    given = padded(episodes(case, prompts, group))
    rows = prompts * group
    meter = learner_side.Meter()

    class Given(GRPOTrainer):
        def _generate_and_score_completions(self, _inputs: Any) -> dict[str, torch.Tensor]:
            return {name: one.clone() for name, one in given.items()}

    class Steps(TrainerCallback):
        def on_step_begin(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
            if not meter.wait():
                raise SystemExit

        def on_step_end(self, *_: Any, **__: Any) -> None:
            meter.done()

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16 if learner_side.CUDA else torch.float32)
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    config = GRPOConfig(
        output_dir=str(model / "trl"),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=rows // micro,
        num_generations=group,
        max_completion_length=4096,
        beta=0.0,
        loss_type="dapo",
        learning_rate=LEARNING_RATE,
        max_steps=steps,
        logging_steps=10**6,
        report_to="none",
        save_strategy="no",
        use_cpu=not learner_side.CUDA,
        seed=0,
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
        disable_tqdm=True,
        bf16=learner_side.CUDA,
        gradient_checkpointing=False,
    )
    trainer = Given(
        model=get_peft_model(base, lora),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        processing_class=tokenizer(),
        train_dataset=Dataset.from_list([{"prompt": f"t{i + 2}"} for i in range(rows)]),
        callbacks=[Steps()],
    )
    width = given["prompt_ids"].shape[1] + given["completion_ids"].shape[1]
    meter.ready(fed=rows * width)
    trainer.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:7]))
