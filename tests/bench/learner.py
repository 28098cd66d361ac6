"""`just bench learner`: what a training step costs, beside plain padding and beside TRL.

A random Llama of 4 layers, LoRA on all linear layers, one thread; CPU seconds of whole steps, forward to optimizer.
Every side is a process of its own that steps when told to, so that all sides of a ratio take turns in one run; a ratio
is that of the medians. Prints one JSON object a line; name some parts to see only those.

- `shared_prefix_vs_padded`: padded rows (Hugging Face's model as it is, rows sorted by length, at the better of two
  sizes of micro-batch) over shared prefixes, P=512, groups of 8.
- `shared_prefix_of_bound`: that ratio over the ratio of the tokens that both feed to the model, padding counted (its
  baseline): 1 would be a step of which every part costs in proportion to the tokens fed. What is cheaper than that
  (head, adapters) lifts it.
- `loss_diff`: the largest difference between the two ways' losses over the steps, from the same weights.
- `vs_trl` (P=512), `vs_trl_p128`, `multiturn_vs_trl` (five turns): TRL 1.16.0's GRPO step on the same model, batch and
  LoRA, in its fair settings (see learner_trl.py), micro-batches of 8 rows, over ours.
- `peak_mb_vs_trl`: memory of a step beyond what was held before, ours over TRL's, at P=512.
- `async_vs_sync`, `async_vs_slowest_stage`: whole runs with long-tailed episodes (see learner_async.py).

Takes about twenty minutes on two quiet cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import learner_async  # noqa: E402
from learner_batches import episodes, response_tokens, save_model  # noqa: E402

PARTS = ("shared", "trl", "turns", "async")
TRL_PYTHON = HERE.parents[1] / ".venv-trl/bin/python"
OWN_LIMIT, PADDED_LIMITS = 8192, (3072, 8192)


class Side:
    """A process that steps when told to."""

    def __init__(self, command: list[object], device: str) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "LEYDEN_BENCH_DEVICE": device}
        self._process = subprocess.Popen(
            [str(one) for one in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.steps: list[dict[str, Any]] = []
        self.fed: int = self._read()["fed"]

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def step(self) -> None:
        """Take a step and remember what it cost."""
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        self.steps.append(self._read())

    @property
    def cpu_s(self) -> float:
        """Median of a step, without the first, which also warms up."""
        return statistics.median(step["cpu_s"] for step in self.steps[1:])

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"it ended: {self._process.args}")
        return json.loads(line)


class Bench:
    """The sides' common ground."""

    def __init__(self, model: Path, asked: argparse.Namespace, device: str = "cpu") -> None:
        self._model, self._asked, self._device = model, asked, device

    def own(self, case: str, way: str, limit: int) -> Side:
        """Start Leyden's learner."""
        batch = [case, self._asked.prompts, self._asked.group]
        return Side([sys.executable, HERE / "learner_own.py", self._model, *batch, way, limit], self._device)

    def trl(self, case: str) -> Side:
        """Start TRL's trainer."""
        batch = [case, self._asked.prompts, self._asked.group]
        command = [TRL_PYTHON, HERE / "learner_trl.py", self._model, *batch, 8, self._asked.rounds + 2]
        return Side(command, self._device)

    def rounds(self, *sides: Side) -> None:
        """Let the sides take turns."""
        for _ in range(self._asked.rounds + 1):
            for side in sides:
                side.step()

    def shared(self) -> None:
        """Shared prefixes beside plain padding."""
        with ExitStack() as stack:
            shared = stack.enter_context(self.own("512", "shared", OWN_LIMIT))
            padded = [stack.enter_context(self.own("512", "padded", limit)) for limit in PADDED_LIMITS]
            self.rounds(shared, *padded)
            best = min(padded, key=lambda side: side.cpu_s)
            ratio = best.cpu_s / shared.cpu_s
            show("shared_prefix_vs_padded", ratio, "x", 3.5, 1)
            show("shared_prefix_of_bound", ratio / (best.fed / shared.fed), "x", 0.95, best.fed / shared.fed)
            show("loss_diff", max(_difference(shared, side) for side in padded), "", 1e-5)

    def against_trl(self, case: str, name: str, target: float) -> None:
        """Whole steps beside TRL's."""
        tokens = response_tokens(episodes(case, self._asked.prompts, self._asked.group))
        with self.own(case, "shared", OWN_LIMIT) as own, self.trl(case) as trl:
            self.rounds(own, trl)
            show(name, trl.cpu_s / own.cpu_s, "x", target, 1)
            show(f"{name}.tokens_per_cpu_s", tokens / own.cpu_s, "response tokens", None, tokens / trl.cpu_s)
            if case == "512":
                ours, theirs = (side.steps[0]["peak_mb"] for side in (own, trl))
                show("peak_mb_vs_trl", ours / theirs, "x", 0.9, 1)
                show("peak_mb", ours, "MiB of a step", None, theirs)


def _difference(one: Side, other: Side) -> float:
    return max(abs(a["loss"] - b["loss"]) for a, b in zip(one.steps, other.steps, strict=True))


def show(name: str, value: float, unit: str, target: float | None, baseline: float | None = None) -> None:
    """Print one figure."""
    numbers = [None if one is None else float(f"{one:.4g}") for one in (value, target, baseline)]
    figure = {"name": f"learner.{name}", "value": numbers[0], "unit": unit}
    print(json.dumps(figure | {"target": numbers[1], "baseline": numbers[2]}), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=4, help="of a batch")
    parser.add_argument("--group", type=int, default=8, help="responses to each prompt")
    parser.add_argument("--steps", type=int, default=30, help="of the runs with long-tailed episodes")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(unknown)}")
    parts = asked.parts or PARTS
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(save_model(Path(folder)), asked)
        if "shared" in parts:
            bench.shared()
        if "trl" in parts:
            bench.against_trl("512", "vs_trl", 4)
            bench.against_trl("128", "vs_trl_p128", 2.5)
        if "turns" in parts:
            bench.against_trl("turns", "multiturn_vs_trl", 1.4)
    if "async" in parts:
        with tempfile.TemporaryDirectory() as folder:
            learner_async.measure(Path(folder), asked.steps, show)


if __name__ == "__main__":
    main()
