"""One run's training state, and the optimizer step. The same state and batch always make the same next state."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load, save
from torch import Tensor

from leyden_algorithms import LOSSES, RatioStats
from leyden_contracts import RunSpec, Trajectory
from leyden_learner.batch import Batch, Rules, Sample, build_batch
from leyden_learner.compute import DEFAULT, Compute
from leyden_learner.forward import MicroBatch, share
from leyden_learner.metrics import batch_metrics
from leyden_learner.policy import Policy

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
OPTIMIZER, RNG = "optimizer.safetensors", "rng.safetensors"


class Trainer:
    """The policy, its optimizer and the random numbers of one run, at one version.

    Started in several processes by torchrun, each is given the same batches, computes a part of every step, and makes
    the same next version.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: Path,
        device: str = "auto",
        compute: Compute = DEFAULT,
    ) -> None:
        self.spec = spec
        self.version = 0
        self._accelerator = Accelerator(cpu=device == "cpu")
        shape = spec.algorithm.lora
        self.policy = Policy(folder, spec.base_model, shape, spec.seed, self._accelerator, compute)
        self._optimizer: Any = self._accelerator.prepare_optimizer(
            torch.optim.AdamW(list(self.policy.parameters.values()), lr=spec.algorithm.learning_rate, weight_decay=0.0)
        )
        self._generator = torch.Generator().manual_seed(spec.seed)

    def build_batch(self, groups: Sequence[tuple[str, Sequence[Trajectory]]]) -> Batch:
        """Return what the next step trains on; draws from the run's random numbers."""
        rules = Rules(self.spec.algorithm, self.spec.lead_role, self.version, self.policy.vocabulary)
        return build_batch(groups, rules, self._generator)

    def step(self, batch: Batch) -> dict[str, float]:
        """Make the next version from `batch`, and return metrics.

        The weights stay as they are where no group gave a signal, or where the loss or the gradient is not finite
        (`refused` is then 1).
        """
        started = time.perf_counter()
        metrics = batch_metrics(batch, self.version)
        if batch.samples:
            metrics |= self._update(batch.samples)
        self.version += 1
        return metrics | {"seconds": time.perf_counter() - started}

    def _update(self, samples: Sequence[Sample]) -> dict[str, float]:
        algorithm = self.spec.algorithm
        lengths = torch.tensor([sample.sampled_logprobs.numel() for sample in samples])
        ends = lengths.cumsum(0).tolist()
        logprobs_T = torch.zeros(ends[-1])
        total = torch.zeros((), dtype=torch.float64)
        for part in self._own_parts(samples):
            logprobs = self.policy.response_logprobs([samples[i] for i in part.samples])
            # Divided by the tokens of all processes: the sum of their gradients is then that of the whole batch.
            loss = self._losses(logprobs, [samples[i] for i in part.samples]).sum() / ends[-1]
            self._accelerator.backward(loss)
            total += loss.item()
            for i, own in zip(
                part.samples, logprobs.detach().cpu().split(lengths[list(part.samples)].tolist()), strict=True
            ):
                logprobs_T[ends[i] - own.numel() : ends[i]] = own
        self._add_up(logprobs_T, total)
        norm = float(self._accelerator.clip_grad_norm_(self.policy.parameters.values(), algorithm.max_grad_norm))
        stats = RatioStats(algorithm.clip_low, algorithm.clip_high)
        stats.add(logprobs_T, *_sampled(samples))
        metrics = {"loss": float(total), "grad_norm": norm, "tokens": float(ends[-1]), **stats.metrics()}
        # One step on a broken number would spoil the weights for ever.
        sound = math.isfinite(norm) and math.isfinite(total)
        if sound:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        # JSON knows no infinity: what is not finite is left out.
        return {name: value for name, value in metrics.items() if math.isfinite(value)} | {"refused": float(not sound)}

    def _own_parts(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        """Return the passes that this process computes."""
        limit, processes = self.spec.algorithm.micro_batch_tokens, self._accelerator.num_processes
        parts = self.policy.micro_batches(samples, limit)
        # A batch that fits in fewer passes than there are processes is cut finer.
        fair = -(-sum(part.tokens for part in parts) // processes)
        if len(parts) < processes:
            parts = self.policy.micro_batches(samples, fair)
        return share(parts, processes)[self._accelerator.process_index]

    def _losses(self, logprobs: Tensor, samples: Sequence[Sample]) -> Tensor:
        """Return the loss of each of the samples' response tokens."""
        algorithm = self.spec.algorithm
        sampled, advantages_T = (one.to(logprobs.device) for one in _sampled(samples))
        loss: Callable[..., Tensor] = LOSSES[algorithm.loss]
        return loss(logprobs, sampled, advantages_T, algorithm.clip_low, algorithm.clip_high)

    def _add_up(self, *sums: Tensor) -> None:
        """Make the gradients and `sums` those of all processes together; in place."""
        if self._accelerator.num_processes == 1:
            return
        weights = list(self.policy.parameters.values())
        parts = [weight.grad if weight.grad is not None else torch.zeros_like(weight) for weight in weights]
        # As one vector: a message for each of hundreds of small matrices would cost more than the matrices.
        whole = self._accelerator.reduce(torch.cat([part.flatten() for part in parts]), reduction="sum")
        for weight, part in zip(weights, whole.split([weight.numel() for weight in weights]), strict=True):
            weight.grad = part.view_as(weight)
        for one in sums:
            one.copy_(self._accelerator.reduce(one.to(self._accelerator.device), reduction="sum"))

    def files(self) -> dict[str, bytes]:
        """Return the whole state as a checkpoint's files; peft and vLLM load the adapter's two."""
        return {
            ADAPTER: save(_plain(self.policy.adapter_state()), metadata={"format": "pt"}),
            ADAPTER_CONFIG: self.policy.adapter_config(),
            OPTIMIZER: save(_plain(self._optimizer_state())),
            RNG: save({"generator": self._generator.get_state()}),
        }

    def restore(self, version: int, files: dict[str, bytes]) -> None:
        """Go back to the state that `files` returned at `version`. Raises ValueError where they do not fit."""
        self.policy.load_adapter_state(load(files[ADAPTER]))
        self._load_optimizer_state(load(files[OPTIMIZER]))
        self._generator.set_state(load(files[RNG])["generator"])
        self.version = version

    def _optimizer_state(self) -> dict[str, Tensor]:
        states = self._optimizer.state_dict()["state"]
        names = list(self.policy.parameters)
        return {f"{names[i]}:{field}": value for i, state in states.items() for field, value in state.items()}

    def _load_optimizer_state(self, tensors: dict[str, Tensor]) -> None:
        index = {name: i for i, name in enumerate(self.policy.parameters)}
        states: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            name, _, field = key.rpartition(":")
            states.setdefault(index[name], {})[field] = value
        whole = self._optimizer.state_dict()
        self._optimizer.load_state_dict({"state": states, "param_groups": whole["param_groups"]})


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}


def _sampled(samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """Return, for each response token, its logprob as sampled and its advantage, both of shape [T]."""
    lengths = torch.tensor([sample.sampled_logprobs.numel() for sample in samples])
    advantages = torch.tensor([sample.advantage for sample in samples], dtype=torch.float32)
    return torch.cat([sample.sampled_logprobs for sample in samples]), torch.repeat_interleave(advantages, lengths)
