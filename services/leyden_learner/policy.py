"""The policy: a frozen base model and a run's LoRA adapters on all its linear layers (arXiv 2106.09685), one a role."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import structlog
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from leyden_contracts import LoraShape
from leyden_learner.compute import DEFAULT, Compute, Precision, Sharding
from leyden_learner.forward import Forward, MicroBatch, PaddedForward, Scores, SharedForward, unfit
from leyden_learner.samples import Sample
from leyden_learner.sharding import IDLE, shard_layers

log = structlog.get_logger()


class UnknownModel(Exception):
    """A run names a base model that this learner does not have."""


class Policy:
    """Computes logprobs, with gradients for the adapter in use alone. After construction that is the first role's."""

    def __init__(
        self,
        folder: Path,
        base_model: str,
        shape: LoraShape,
        seed: int,
        accelerator: Accelerator,
        compute: Compute = DEFAULT,
        roles: Sequence[str] = ("policy",),
    ) -> None:
        self._products = torch.bfloat16 if compute.precision is Precision.BFLOAT16 else torch.float32
        base = _load(folder, base_model, self._products)
        self.vocabulary: int = base.get_input_embeddings().num_embeddings
        self.width: int = base.get_output_embeddings().weight.shape[1]
        config = LoraConfig(
            r=shape.rank,
            lora_alpha=shape.alpha,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        self._base_model = base_model
        self._role = roles[0]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            # peft keeps the adapters in float32, whatever the base is in.
            self._peft: Any = get_peft_model(base, config, adapter_name=roles[0])
            for role in roles[1:]:
                # Each begins as it would alone.
                torch.manual_seed(seed)
                self._peft.add_adapter(role, config)
        # Dropout, where a base model has some, would make the first importance ratio differ from 1.
        self._peft.eval()
        if compute.gradient_checkpointing:
            _checkpoint(base)
        self._device = accelerator.device
        self.sharded = compute.sharding is not Sharding.NONE
        self.alone: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around passes that only this process makes; where layers are sharded, the others must make idle ones."""
        if self.sharded and not shard_layers(base, self._device):
            raise UnknownModel(f"the base model {base_model!r} has no list of layers to shard: switch sharding off")
        # Not wrapped for many processes: the trainer adds their gradients up itself, once a step.
        self._peft.to(self._device)
        self._forward = _choose_forward(base, compute, self._device, self._products)
        self.use(roles[0])

    def use(self, role: str) -> None:
        """Let `role`'s adapter be the one that is meant from now on."""
        self._peft.set_adapter(role)
        self._role = role

    @property
    def parameters(self) -> dict[str, Tensor]:
        """What is trained of the adapter in use, by name, in a fixed order."""
        return {name: weight for name, weight in self._peft.named_parameters() if weight.requires_grad}

    def micro_batches(self, samples: Sequence[Sample], token_limit: int) -> list[MicroBatch]:
        """Cut the samples into passes that feed at most `token_limit` tokens each; one long sample goes alone."""
        return self._forward.micro_batches(samples, token_limit)

    def response_logprobs(self, samples: Sequence[Sample]) -> Tensor:
        """Return logprobs of all responses, each at its call's temperature: shape [sum of R], sample by sample."""
        return self.response_scores(samples).logprobs

    def response_scores(self, samples: Sequence[Sample], entropy: bool = False) -> Scores:
        """Return logprobs of all responses and, if asked, entropies; both carry gradients for the adapter."""
        with self._mixed():
            return self._scores(samples, entropy)

    def frozen_logprobs(self, samples: Sequence[Sample], adapter: bool = True) -> Tensor:
        """Return what `response_logprobs` does, without gradients; by the base model where `adapter` is false."""
        with self._plain(adapter):
            return self._scores(samples).logprobs

    def idle(self) -> None:
        """Make a pass of no use, while another process makes one `alone`."""
        self.frozen_logprobs([])

    def _scores(self, samples: Sequence[Sample], entropy: bool = False) -> Scores:
        if samples:
            return self._forward.scores(samples, entropy)
        # Its backward pass goes through all layers, too.
        idle = self._forward.scores([IDLE], entropy)
        return Scores(idle.logprobs[:0], None if idle.entropy is None else idle.entropy[:0])

    def base_states(self, samples: Sequence[Sample]) -> Tensor:
        """Return the base model's final hidden states that predict the responses: float32, shape [sum of R, H]."""
        with self._plain(adapter=False):
            return self._forward.hidden(samples).float()

    def sequence_logprobs(self, token_ids: Sequence[int], adapter: bool = True) -> list[float]:
        """Return logprobs of tokens 2..T at temperature 1; of the base model where `adapter` is false."""
        ids = torch.tensor([list(token_ids)], device=self._device)
        with self.alone(), self._plain(adapter):
            logits = self._peft(input_ids=ids, use_cache=False).logits[0, :-1]
        return logits.float().log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist()

    def next_logprobs(self, token_ids: Sequence[int], places: Sequence[int], adapter: bool = True) -> Tensor:
        """Return logprobs of all tokens after the first n tokens, for each n of `places`: float32 of shape [P, V]."""
        return self.next_logprobs_each([token_ids], [places], adapter)[0]

    def next_logprobs_each(
        self, sequences: Sequence[Sequence[int]], places: Sequence[Sequence[int]], adapter: bool = True
    ) -> list[Tensor]:
        """Return what `next_logprobs` does of each of a few short sequences, in one pass."""
        rows = [torch.tensor(list(tokens), device=self._device) for tokens in sequences]
        with self.alone(), self._plain(adapter):
            # Nothing looks ahead: what fills a row up is seen by nobody.
            logits = self._peft(input_ids=pad_sequence(rows, batch_first=True), use_cache=False).logits
        at = [[place - 1 for place in own] for own in places]
        return [logits[row, own].float().log_softmax(-1).cpu() for row, own in enumerate(at)]

    @contextmanager
    def _plain(self, adapter: bool) -> Iterator[None]:
        with torch.no_grad(), self._mixed(), nullcontext() if adapter else self._peft.disable_adapter():
            yield

    def _mixed(self) -> torch.autocast:
        """The adapter's products, too, are in the base's precision; its weights and gradients are not."""
        return torch.autocast(self._device.type, self._products, enabled=self._products is not torch.float32)

    def adapter_state(self) -> dict[str, Tensor]:
        """Return the adapter's weights under the names that peft and vLLM read."""
        return get_peft_model_state_dict(self._peft, adapter_name=self._role, save_embedding_layers=False)

    def load_adapter_state(self, state: dict[str, Tensor]) -> None:
        """Replace the adapter's weights. Raises ValueError where they do not fit."""
        expected = {name: tuple(weight.shape) for name, weight in self.adapter_state().items()}
        if {name: tuple(weight.shape) for name, weight in state.items()} != expected:
            raise ValueError("the adapter's weights do not fit the base model and the run's LoRA shape")
        set_peft_model_state_dict(self._peft, state, adapter_name=self._role)

    def adapter_config(self) -> bytes:
        """Return `adapter_config.json`; the same bytes for the same run."""
        config = self._peft.peft_config[self._role].to_dict()
        # peft lists every module by its path here; engines expect the short names.
        modules = sorted({name.rpartition(".")[2] for name in config["target_modules"]})
        config |= {"inference_mode": True, "target_modules": modules, "base_model_name_or_path": self._base_model}
        return json.dumps(config, indent=2, sort_keys=True, default=sorted).encode()


def _load(folder: Path, base_model: str, dtype: torch.dtype) -> Any:
    if not (folder / "config.json").is_file():
        raise UnknownModel(f"the base model {base_model!r} is not at {folder}: there is no config.json")
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UnknownModel(f"the base model {base_model!r} at {folder} cannot be read: {error}") from error


def _checkpoint(base: Any) -> None:
    """Let the layers keep only their inputs. Raises UnknownModel where they cannot."""
    layers = [module for module in base.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UnknownModel(f"models of type {base.config.model_type!r} know no gradient checkpointing: switch it off")
    base.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in layers:
        # They do it in training only. What is in them stays as it is: dropout is off.
        layer.training = True


def _choose_forward(base: Any, compute: Compute, device: torch.device, products: torch.dtype) -> Forward:
    reason = unfit(base) if compute.shared_prefixes else "switched off"
    if reason is None:
        return SharedForward(base, device, products)
    log.warning("prefixes_not_shared", reason=reason)
    return PaddedForward(base, device)
