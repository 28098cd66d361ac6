"""What one role learns in a start: an optimizer step at a time. The same data and seed make the same weights."""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from leyden_contracts import DpoStart, SftStart
from leyden_learner.start.losses import dpo_shares, sft_shares
from leyden_learner.start.units import Unit
from leyden_learner.trainer import Trainer

Measures = dict[str, float]


class Lesson:
    """Teaches a role its units, with an optimizer of its own: reinforcement learning begins with a fresh one."""

    def __init__(self, trainer: Trainer, role: str, units: Sequence[Unit], start: SftStart | DpoStart) -> None:
        policy, rules = trainer.policy, trainer.spec.algorithm
        self._policy, self._role, self._units = policy, role, units
        self._max_grad_norm, token_limit = rules.max_grad_norm, rules.micro_batch_tokens
        self._shares: Any = (
            partial(dpo_shares, start=start, token_limit=token_limit)
            if isinstance(start, DpoStart)
            else partial(sft_shares, token_limit=token_limit)
        )
        policy.use(role)
        weights = list(policy.parameters.values())
        self._optimizer = torch.optim.AdamW(weights, lr=start.learning_rate, weight_decay=0.0)
        self._epoch_steps = -(-len(units) // start.batch_size)
        self.steps = start.steps or (start.epochs or 1) * self._epoch_steps if units else 0
        self._batches = _batches(units, start.batch_size, trainer.spec.seed)
        self._measured: list[Measures] = []
        self._began = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether all steps are taken."""
        return len(self._measured) >= self.steps

    def step(self) -> None:
        """Take one step; one whose loss or gradient is not finite leaves the weights as they are, and is counted."""
        self._policy.use(self._role)
        batch = next(self._batches)
        measured: Measures = {"loss": 0.0}
        for loss, measures in self._shares(self._policy, batch):
            loss.backward()
            for name, value in ({"loss": loss.item()} | measures).items():
                measured[name] = measured.get(name, 0.0) + value
        norm = torch.nn.utils.clip_grad_norm_(self._policy.parameters.values(), self._max_grad_norm)
        measured |= {"grad_norm": float(norm)}
        measured["tokens"] = float(sum(sample.response.numel() for unit in batch for sample in unit.samples))
        sound = math.isfinite(measured["loss"]) and math.isfinite(measured["grad_norm"])
        if sound:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._measured.append(measured | {"refused": float(not sound)})

    def metrics(self) -> Measures:
        """Return means over the last epoch, `loss_first` of the first step, and the sums of `tokens` and `refused`."""
        last = self._measured[-self._epoch_steps :] if self._measured else []
        found = {name: sum(one[name] for one in last) / len(last) for name in (last[0] if last else ())}
        found |= {name: sum(one[name] for one in self._measured) for name in ("tokens", "refused")}
        if self._measured:
            found["loss_first"] = self._measured[0]["loss"]
        found |= {"steps": float(len(self._measured)), "samples": float(len(self._units))}
        found["seconds"] = time.perf_counter() - self._began
        # JSON knows no infinity: what is not finite is left out.
        return {name: value for name, value in found.items() if math.isfinite(value)}


def _batches(units: Sequence[Unit], size: int, seed: int) -> Iterator[list[Unit]]:
    """Yield batches, epoch after epoch, each in an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    while units:
        order = torch.randperm(len(units), generator=generator).tolist()
        for first in range(0, len(order), size):
            yield [units[i] for i in order[first : first + size]]
