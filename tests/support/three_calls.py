"""A task of three calls whose worth can be foreseen, for the tests of the critic; and a few steps on it."""

import json
from pathlib import Path

import torch

from support.learning import make_call, make_spec, make_trajectory

TASKS = 6
POLICY = ("policy",) * 3


def three_calls(step: int, groups: int = 6, version: int = 0, roles: tuple[str, ...] = POLICY) -> list:
    """Return groups of one episode each, of three calls that succeed by chance; the reward is how many did.

    A task's luck is known from its prompt, and a prompt tells how the calls before it went.
    """
    draw = torch.Generator().manual_seed(step)
    found = []
    for g in range(groups):
        task, name = int(torch.randint(TASKS, (1,), generator=draw)), f"s{step}g{g}"
        prompt, calls, wins = [1, 2, 3, 10 + task, 4], [], 0
        for number in (1, 2, 3):
            won = int(torch.rand((), generator=draw) < (0.95 if task % 2 else 0.05))
            calls.append(
                make_call(
                    f"{name}.0",
                    number,
                    prompt=prompt,
                    response=(20 + won, 9),
                    role=roles[number - 1],
                    version=version,
                )
            )
            prompt, wins = [*prompt, 20 + won, 9, 5 + number, 4], wins + won
        found.append((name, [make_trajectory(name, 0, wins / 3, calls)]))
    return found


def take_critic_steps(model: Path, out: Path) -> Path:
    """Take two steps with a critic, as one of several processes or alone; see `learner_process.take_steps`."""
    from leyden_learner.trainer import Trainer

    trainer = Trainer(make_spec(credit="critic", learning_rate=1e-3, micro_batch_tokens=64), model, "cpu")
    metrics = []
    for step in range(2):
        metrics.append(trainer.step(trainer.build_batch(three_calls(step, version=step)))["policy"])
    folder = out / f"critic-{trainer._accelerator.process_index}"
    folder.mkdir(parents=True)
    for name, data in trainer.files("policy").items():
        (folder / name).write_bytes(data)
    (folder / "metrics").write_text(json.dumps([trainer._accelerator.num_processes, *metrics]))
    return folder
