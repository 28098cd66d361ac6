"""Leyden's side: `python learner_own.py MODEL CASE PROMPTS GROUP shared|padded TOKEN_LIMIT` (see learner_side)."""

import sys
from pathlib import Path

import learner_side
import torch
from learner_batches import ALPHA, LEARNING_RATE, RANK, VOCABULARY, Episode, episodes

from leyden_contracts import RunSpec
from leyden_learner.batch import Batch
from leyden_learner.compute import Compute, Precision
from leyden_learner.samples import Sample
from leyden_learner.trainer import Trainer


def samples(batch: list[Episode]) -> list[Sample]:
    """Return the calls as the learner gets them: each turn with all that came before as its prompt."""
    found = []
    for one in batch:
        tokens = one.prompt
        for piece in one.pieces:
            tokens = torch.cat([tokens, piece.tokens])
            if piece.sampled:
                uniform = torch.full((piece.tokens.numel(),), -float(torch.tensor(VOCABULARY).log()))
                found.append(Sample(tokens, uniform, 1.0, one.advantage, role="policy"))
    return found


def main(model: Path, case: str, prompts: int, group: int, way: str, limit: int) -> None:
    """Serve steps."""
    torch.set_num_threads(1)
    algorithm = {
        "learning_rate": LEARNING_RATE,
        "micro_batch_tokens": limit,
        "lora": {"rank": RANK, "alpha": ALPHA},
        "max_grad_norm": 1.0,
    }
    spec = RunSpec.model_validate({"base_model": "m", "agent": "a:b", "grader": "a:c", "algorithm": algorithm})
    precision = Precision.BFLOAT16 if learner_side.CUDA else Precision.FLOAT32
    compute = Compute(precision, shared_prefixes=way == "shared")
    trainer = Trainer(spec, model, "cuda" if learner_side.CUDA else "cpu", compute)
    found = samples(episodes(case, prompts, group))
    fed = sum(part.tokens for part in trainer.policy.micro_batches(found, limit))
    batch = Batch(groups=(), skipped={}, dropped={}, rollouts=(), episodes=(), samples=tuple(found))

    def step() -> dict[str, float]:
        metrics = trainer.step(batch)["policy"]
        return {"loss": metrics["loss"], "grad_norm": metrics["grad_norm"]}

    learner_side.serve(step, fed=fed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
