"""`python -m torch.distributed.run … learner_process.py MODEL OUT LIMIT…`: a few steps, and what came of them.

LIMIT is tokens of a pass; with `+fsdp2` behind it, the base model's layers are sharded, and there are `frozen_passes`.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "libs"), str(HERE.parents[1] / "services")]


def take_steps(model: Path, out: Path, limit: int, sharding: str = "none", frozen_passes: bool = False) -> Path:
    """Take two steps on one batch, in passes of `limit` tokens, as one of several processes or alone.

    With `frozen_passes`, each step needs logprobs without gradients, too, and the batch is of three passes.

    Writes the last version's files, its `gradient`, `metrics`, and `shard` (numbers of weights kept here, and of idle
    passes in a step) into OUT/LIMIT-rank, and returns that folder.
    """
    from safetensors.torch import save_file

    from leyden_learner.compute import Compute, Sharding
    from leyden_learner.trainer import Trainer
    from support.forest import make_batch, make_samples
    from support.learning import make_spec

    more = {"correction": "tis", "kl": 0.1} if frozen_passes else {}
    spec, compute = (
        make_spec(micro_batch_tokens=limit, learning_rate=1e-3, **more),
        Compute(sharding=Sharding(sharding)),
    )
    trainer = Trainer(spec, model, "cpu", compute)
    gradients: dict[str, object] = {}
    plain = trainer._optimizers["policy"].step

    def step() -> None:
        gradients.update({name: weight.grad.clone() for name, weight in trainer.policy.parameters.items()})
        plain()

    trainer._optimizers["policy"].step = step
    batch = make_batch(make_samples(3, 1) if frozen_passes else make_samples(3, 4, turns=2))
    metrics = [trainer.step(batch)["policy"] for _ in range(2)]
    folder = out / f"{limit}-{trainer._accelerator.process_index}"
    folder.mkdir(parents=True)
    save_file(gradients, folder / "gradient")
    for name, data in trainer.files("policy").items():
        (folder / name).write_bytes(data)
    (folder / "metrics").write_text(json.dumps([trainer._accelerator.num_processes, *metrics]))
    kept = sum(getattr(weight, "_local_tensor", weight).numel() for weight in trainer.policy._peft.parameters())
    idle = sum(not part.samples for part in trainer._own_parts(batch.samples))
    (folder / "shard").write_text(json.dumps([kept, idle]))
    return folder


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    for one in sys.argv[3:]:
        number, _, kind = one.partition("+")
        take_steps(Path(sys.argv[1]), Path(sys.argv[2]), int(number), kind or "none", bool(kind))
    from support.three_calls import take_critic_steps

    take_critic_steps(Path(sys.argv[1]), Path(sys.argv[2]))
