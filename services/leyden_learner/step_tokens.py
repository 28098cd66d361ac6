"""All response tokens of one role in one step, side by side; a pass works on some of the samples."""

from collections.abc import Sequence

import torch
from torch import Tensor

from leyden_algorithms import Tokens, Totals
from leyden_learner.forward import MicroBatch
from leyden_learner.objective import Objective
from leyden_learner.samples import Sample


class StepTokens:
    """Logprobs and advantages of T tokens on the CPU, sample by sample."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.lengths_S = torch.tensor([sample.sampled_logprobs.numel() for sample in samples])
        self.sampled_T = torch.cat([sample.sampled_logprobs for sample in samples])
        self.old_T = self.sampled_T
        """By the learner before the step, once it has been computed; until then the engine's."""
        advantages_S = torch.tensor([sample.advantage for sample in samples], dtype=torch.float32)
        self.advantages_T = torch.repeat_interleave(advantages_S, self.lengths_S)
        self.totals = Totals(tokens=self.sampled_T.numel(), samples=len(samples))
        self._starts_S = self.lengths_S.cumsum(0) - self.lengths_S

    def own(self, part: MicroBatch) -> list[Sample]:
        """Return the samples of a pass."""
        return [self.samples[i] for i in part.samples]

    def places(self, part: MicroBatch) -> Tensor:
        """Return where the tokens of a pass stand among all, in the order of the pass."""
        if not part.samples:
            return torch.zeros(0, dtype=torch.int64)
        ranges = [torch.arange(int(self.lengths_S[i])) + self._starts_S[i] for i in part.samples]
        return torch.cat(ranges)

    def tokens(self, part: MicroBatch, current_T: Tensor) -> Tokens:
        """Return the tokens of a pass with their logprobs by the policy in training, on its device."""
        at_T, device = self.places(part), current_T.device
        return Tokens(
            current_T=current_T,
            old_T=self.old_T[at_T].to(device),
            sampled_T=self.sampled_T[at_T].to(device),
            advantages_T=self.advantages_T[at_T].to(device),
            lengths_S=self.lengths_S[list(part.samples)].to(device),
        )

    def measure(self, objective: Objective, current_T: Tensor, entropies_T: Tensor | None) -> dict[str, float]:
        """Return what people watch: the step's ratios; with a correction, those to the engine, and what it dropped."""
        moved = objective.stats(self.lengths_S, current_T, self.old_T, self.advantages_T, entropies_T)
        # Costs nothing, and has the entropy as its mean where the policy sampled the tokens itself. The exact one costs
        # a second product with the whole head, so it is computed only where the loss needs it.
        metrics = moved.metrics() | {"entropy_sampled": -float(current_T.mean())}
        if objective.needs_old:
            engine = objective.stats(self.lengths_S, self.old_T, self.sampled_T, self.advantages_T).metrics()
            metrics |= {f"engine_{name}": engine[name] for name in ("ratio_mean", "ratio_max", "kl")}
            whole = MicroBatch(tuple(range(len(self.samples))), 0)
            counts = objective.correction(self.tokens(whole, current_T)).counts
            metrics |= {f"tokens_{reason}": float(count) for reason, count in counts.items()}
        return metrics
