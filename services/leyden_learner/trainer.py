"""One run's training state, and the optimizer step. The same state and batch always make the same next state."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load, save
from torch import Tensor

from leyden_contracts import RunSpec, Trajectory
from leyden_learner import optimizer_state
from leyden_learner.batch import Batch, build_batch, has_signal
from leyden_learner.compute import DEFAULT, Compute
from leyden_learner.critics import Critics, lesson_metrics
from leyden_learner.forward import MicroBatch, share
from leyden_learner.metrics import batch_metrics
from leyden_learner.objective import Objective
from leyden_learner.policy import Policy
from leyden_learner.rollouts import Rules
from leyden_learner.samples import Sample
from leyden_learner.step_tokens import StepTokens
from leyden_runtime.failpoints import failpoint

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
OPTIMIZER, RNG = "optimizer.safetensors", "rng.safetensors"
Metrics = dict[str, float]


class Trainer:
    """The policy, its optimizers, critics and random numbers of one run, at one version.

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
        self.roles = spec.trained_roles
        self.objective = Objective(spec.algorithm)
        self._accelerator = Accelerator(cpu=device == "cpu")
        shape = spec.algorithm.lora
        self.policy = Policy(folder, spec.base_model, shape, spec.seed, self._accelerator, compute, self.roles)
        self._optimizers = {role: self._new_optimizer(role) for role in self.roles}
        self._critics = Critics(spec.algorithm, self.policy, self.roles) if spec.algorithm.critic else None
        self._generator = torch.Generator().manual_seed(spec.seed)

    def _new_optimizer(self, role: str) -> Any:
        self.policy.use(role)
        weights, rate = list(self.policy.parameters.values()), self.spec.algorithm.learning_rate
        return self._accelerator.prepare_optimizer(torch.optim.AdamW(weights, lr=rate, weight_decay=0.0))

    def build_batch(self, groups: Sequence[tuple[str, Sequence[Trajectory]]]) -> Batch:
        """Return what the next step trains on; draws from the run's random numbers."""
        judge = self._critics.judge if self._critics else None
        return build_batch(groups, self._rules, self.objective, self._generator, judge)

    def has_signal(self, trajectories: Sequence[Trajectory]) -> bool:
        """Say whether the next step would be trained on this group; for a run with dynamic sampling."""
        return has_signal(trajectories, self._rules, self.objective)

    @property
    def _rules(self) -> Rules:
        return Rules(self.spec.algorithm, self.roles, self.version, self.policy.vocabulary)

    def step(self, batch: Batch) -> dict[str, Metrics]:
        """Make the next version of every role from `batch`, and return metrics by role.

        A role's weights stay as they are where it has no samples. All of them stay where one role's loss or gradient
        is not finite (`refused` is then 1).
        """
        started = time.perf_counter()
        metrics = {role: batch_metrics(batch, role, self.version) for role in self.roles}
        own = {role: batch.of(role) for role in self.roles}
        for role in self.roles:
            metrics[role] |= lesson_metrics(batch.lessons, role)
            if own[role]:
                metrics[role] |= self._gradients(role, own[role])
        failpoint("learner.gradients")
        # One step on a broken number would spoil the weights for ever.
        must_be = ("loss", "grad_norm", "value_loss")
        sound = all(math.isfinite(found.get(name, 0)) for found in metrics.values() for name in must_be)
        for role, optimizer in self._optimizers.items():
            if sound and own[role]:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if sound and self._critics:
            self._critics.learn(batch.lessons)
        failpoint("learner.stepped")
        self.version += 1
        last = {"refused": float(not sound), "seconds": time.perf_counter() - started}
        # JSON knows no infinity: what is not finite is left out.
        return {
            role: {name: value for name, value in (found | last).items() if math.isfinite(value)}
            for role, found in metrics.items()
        }

    def _gradients(self, role: str, samples: Sequence[Sample]) -> Metrics:
        """Leave the role's clipped gradients in its weights; return what was measured, finite or not."""
        self.policy.use(role)
        objective, step, parts = self.objective, StepTokens(samples), self._own_parts(samples)
        if objective.needs_old:
            step.old_T = self._frozen(step, parts, adapter=True)
        base_T = self._frozen(step, parts, adapter=False) if objective.needs_base else None
        current_T, entropies_T = torch.zeros_like(step.sampled_T), torch.zeros_like(step.sampled_T)
        total = torch.zeros((), dtype=torch.float64)
        for part in parts:
            at_T = step.places(part)
            scores = self.policy.response_scores(step.own(part), objective.needs_entropy)
            base = None if base_T is None else base_T[at_T].to(scores.logprobs.device)
            # Divided by the totals of all processes: the sum of their gradients is then that of the whole batch.
            loss = objective.share(step.tokens(part, scores.logprobs), step.totals, base, scores.entropy)
            self._accelerator.backward(loss)
            total += loss.item()
            current_T[at_T] = scores.logprobs.detach().cpu()
            if scores.entropy is not None:
                entropies_T[at_T] = scores.entropy.detach().cpu()
        weights = self.policy.parameters
        self._add_up(list(weights.values()), current_T, entropies_T, total)
        norm = float(self._accelerator.clip_grad_norm_(weights.values(), self.spec.algorithm.max_grad_norm))
        found = {"loss": float(total), "grad_norm": norm, "tokens": float(step.totals.tokens)}
        return found | step.measure(objective, current_T, entropies_T if objective.needs_entropy else None)

    def _frozen(self, step: StepTokens, parts: Sequence[MicroBatch], adapter: bool) -> Tensor:
        """Return logprobs of all samples before the step, shape [T]; by the base model where `adapter` is false."""
        found_T = torch.zeros_like(step.sampled_T)
        for part in parts:
            found_T[step.places(part)] = self.policy.frozen_logprobs(step.own(part), adapter).cpu()
        self._add_up([], found_T)
        return found_T

    def _own_parts(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        """Return the passes that this process computes."""
        limit, processes = self.spec.algorithm.micro_batch_tokens, self._accelerator.num_processes
        parts = self.policy.micro_batches(samples, limit)
        # A batch that fits in fewer passes than there are processes is cut finer.
        fair = -(-sum(part.tokens for part in parts) // processes)
        if len(parts) < processes:
            parts = self.policy.micro_batches(samples, fair)
        shares = share(parts, processes)
        own = shares[self._accelerator.process_index]
        # Sharded layers are gathered by all processes: one with fewer passes makes empty ones.
        missing = max(map(len, shares)) - len(own) if self.policy.sharded else 0
        return own + [MicroBatch((), 0)] * missing

    def _add_up(self, weights: Sequence[Tensor], *sums: Tensor) -> None:
        """Make the gradients of `weights`, and `sums`, those of all processes together; in place."""
        if self._accelerator.num_processes == 1:
            return
        if weights:
            parts = [weight.grad if weight.grad is not None else torch.zeros_like(weight) for weight in weights]
            # As one vector: a message for each of hundreds of small matrices would cost more than the matrices.
            whole = self._accelerator.reduce(torch.cat([part.flatten() for part in parts]), reduction="sum")
            for weight, part in zip(weights, whole.split([weight.numel() for weight in weights]), strict=True):
                weight.grad = part.view_as(weight)
        for one in sums:
            one.copy_(self._accelerator.reduce(one.to(self._accelerator.device), reduction="sum"))

    def files(self, role: str) -> dict[str, bytes]:
        """Return a role's whole state as a checkpoint's files; peft and vLLM load the adapter's two."""
        self.policy.use(role)
        return {
            ADAPTER: save(optimizer_state.plain(self.policy.adapter_state()), metadata={"format": "pt"}),
            ADAPTER_CONFIG: self.policy.adapter_config(),
            OPTIMIZER: optimizer_state.dump(self._optimizers[role], list(self.policy.parameters)),
            RNG: save({"generator": self._generator.get_state()}),
            **(self._critics.files(role) if self._critics else {}),
        }

    def restore(self, version: int, files: dict[str, dict[str, bytes]]) -> None:
        """Go back to what `files` returned of each role at `version`. Raises ValueError where they do not fit."""
        for role in self.roles:
            self.policy.use(role)
            self.policy.load_adapter_state(load(files[role][ADAPTER]))
            optimizer_state.restore(self._optimizers[role], list(self.policy.parameters), files[role][OPTIMIZER])
            self._generator.set_state(load(files[role][RNG])["generator"])
            if self._critics:
                self._critics.restore(role, files[role])
        self.version = version
