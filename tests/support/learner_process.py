"""`python -m torch.distributed.run … learner_process.py MODEL OUT LIMIT…`: a few steps, and what came of them."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "libs"), str(HERE.parents[1] / "services")]


def take_steps(model: Path, out: Path, limit: int) -> Path:
    """Take two steps on one batch, in passes of `limit` tokens, as one of several processes or alone.

    Writes the last version's files, its `gradient`, and `metrics` into OUT/LIMIT-rank, and returns that folder.
    """
    from safetensors.torch import save_file

    from leyden_learner.trainer import Trainer
    from support.forest import make_batch, make_samples
    from support.learning import make_spec

    trainer = Trainer(make_spec(micro_batch_tokens=limit, learning_rate=1e-3), model, "cpu")
    gradients: dict[str, object] = {}
    plain = trainer._optimizers["policy"].step

    def step() -> None:
        gradients.update({name: weight.grad.clone() for name, weight in trainer.policy.parameters.items()})
        plain()

    trainer._optimizers["policy"].step = step
    batch = make_batch(make_samples(3, 4, turns=2))
    metrics = [trainer.step(batch)["policy"] for _ in range(2)]
    folder = out / f"{limit}-{trainer._accelerator.process_index}"
    folder.mkdir(parents=True)
    save_file(gradients, folder / "gradient")
    for name, data in trainer.files("policy").items():
        (folder / name).write_bytes(data)
    (folder / "metrics").write_text(json.dumps([trainer._accelerator.num_processes, *metrics]))
    return folder


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    for number in sys.argv[3:]:
        take_steps(Path(sys.argv[1]), Path(sys.argv[2]), int(number))
    from support.three_calls import take_critic_steps

    take_critic_steps(Path(sys.argv[1]), Path(sys.argv[2]))
