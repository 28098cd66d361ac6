"""The policy: a frozen base model with one run's LoRA adapter on all its linear layers (arXiv 2106.09685)."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from transformers import AutoModelForCausalLM

from leyden_contracts import LoraShape
from leyden_learner.rows import Row


class UnknownModel(Exception):
    """A run names a base model that this learner does not have."""


class Policy:
    """Computes logprobs, with gradients for the adapter alone."""

    def __init__(self, folder: Path, base_model: str, shape: LoraShape, seed: int, accelerator: Accelerator) -> None:
        base = _load(folder, base_model)
        self.vocabulary: int = base.get_input_embeddings().num_embeddings
        config = LoraConfig(
            r=shape.rank,
            lora_alpha=shape.alpha,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        self._base_model = base_model
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._peft: Any = get_peft_model(base, config)
        # Dropout, where a base model has some, would make the first importance ratio differ from 1.
        self._peft.eval()
        self._model: Any = accelerator.prepare_model(self._peft, evaluation_mode=False)
        self._device = accelerator.device

    @property
    def parameters(self) -> dict[str, Tensor]:
        """What is trained, by name, in a fixed order."""
        return {name: weight for name, weight in self._peft.named_parameters() if weight.requires_grad}

    def response_logprobs(self, rows: Sequence[Row]) -> Tensor:
        """Return logprobs of all responses, each at its call's temperature: shape [sum of R], row by row.

        Padding stands on the right, where causal attention never looks: no mask is needed.
        """
        inputs = [row.tokens[:-1] for row in rows]
        ids = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True).to(self._device)
        index, column, heat = _where(rows)
        # The head runs over no position before the first response.
        first = int(column.min())
        kept = torch.arange(first, ids.shape[1], device=self._device)
        logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=kept).logits
        chosen = logits[index.to(self._device), (column - first).to(self._device)].float()
        chosen = chosen / heat.to(self._device)[:, None]
        targets = torch.cat([sample.response for row in rows for sample in row.samples]).to(self._device)
        return chosen.gather(1, targets[:, None])[:, 0] - chosen.logsumexp(1)

    def sequence_logprobs(self, token_ids: Sequence[int], adapter: bool = True) -> list[float]:
        """Return logprobs of tokens 2..T at temperature 1; of the base model where `adapter` is false."""
        ids = torch.tensor([list(token_ids)], device=self._device)
        with torch.no_grad(), nullcontext() if adapter else self._peft.disable_adapter():
            logits = self._model(input_ids=ids, use_cache=False).logits[0, :-1]
        return logits.float().log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist()

    def next_logprobs(self, token_ids: Sequence[int], places: Sequence[int], adapter: bool = True) -> Tensor:
        """Return logprobs of all tokens after the first n tokens, for each n of `places`: float32 of shape [P, V]."""
        ids = torch.tensor([list(token_ids)], device=self._device)
        with torch.no_grad(), nullcontext() if adapter else self._peft.disable_adapter():
            logits = self._model(input_ids=ids, use_cache=False).logits[0, [place - 1 for place in places]]
        return logits.float().log_softmax(-1).cpu()

    def adapter_state(self) -> dict[str, Tensor]:
        """Return the adapter's weights under the names that peft and vLLM read."""
        return get_peft_model_state_dict(self._peft, save_embedding_layers=False)

    def load_adapter_state(self, state: dict[str, Tensor]) -> None:
        """Replace the adapter's weights. Raises ValueError where they do not fit."""
        expected = {name: tuple(weight.shape) for name, weight in self.adapter_state().items()}
        if {name: tuple(weight.shape) for name, weight in state.items()} != expected:
            raise ValueError("the adapter's weights do not fit the base model and the run's LoRA shape")
        set_peft_model_state_dict(self._peft, state)

    def adapter_config(self) -> bytes:
        """Return `adapter_config.json`; the same bytes for the same run."""
        config = self._peft.peft_config["default"].to_dict()
        # peft lists every module by its path here; engines expect the short names.
        modules = sorted({name.rpartition(".")[2] for name in config["target_modules"]})
        config |= {"inference_mode": True, "target_modules": modules, "base_model_name_or_path": self._base_model}
        return json.dumps(config, indent=2, sort_keys=True, default=sorted).encode()


def _load(folder: Path, base_model: str) -> Any:
    if not (folder / "config.json").is_file():
        raise UnknownModel(f"the base model {base_model!r} is not at {folder}: there is no config.json")
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UnknownModel(f"the base model {base_model!r} at {folder} cannot be read: {error}") from error


def _where(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for every response token, its row, the position that predicts it, and its temperature."""
    index, column, heat = [], [], []
    for i, row in enumerate(rows):
        for sample in row.samples:
            # The token at position t + 1 is predicted at t.
            column.append(torch.arange(sample.prompt_length - 1, sample.tokens.numel() - 1))
            index.append(torch.full_like(column[-1], i))
            heat.append(torch.full((column[-1].numel(),), sample.temperature))
    return torch.cat(index), torch.cat(column), torch.cat(heat)
