"""The part `async` of `just bench learner`: a run whose episodes have a long tail, one version at a time and ahead.

Everything is real: task API, workers, gateway, the embedded engine, collector, learner, adapter loader, in one
deployment. The agent (tail_agent.py) sleeps in its tool, so that the slowest of a step's episodes takes about twice as
long as the learner's step; how long that is, is measured first. Then the same tasks run three times:

- generation alone: as an evaluation, which nothing holds back;
- `max_staleness: 0`: generation and learner wait for each other;
- `max_staleness: AHEAD`: generation goes on while the learner steps.

A run's time goes from the accepted upload to the last consumed group, and is told for a trained episode: what was too
stale to train on does not count as done. The learner's own time is that of its steps alone (forward, backward,
optimizer), in the same run; reading, probes, checkpoints and publishing are not in it.

A run's first wait for episodes counts, and so does the last episode of generation alone: with less than about twenty
steps these are large, and `async_vs_slowest_stage` says little.
"""

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from learner_batches import SHAPE  # noqa: E402

from leyden_agents.calculator.recipe import MODEL_DIR  # noqa: E402
from leyden_client.client import LeydenClient  # noqa: E402
from leyden_client.evaluate import evaluate  # noqa: E402
from leyden_contracts import RunSpec, TaskInput  # noqa: E402
from leyden_contracts.api import AdapterView  # noqa: E402
from leyden_standalone.deployment import Options  # noqa: E402
from leyden_standalone.running import running_beside  # noqa: E402
from support.servers import wait_for  # noqa: E402

MODEL = "tail"
GROUPS, EPISODES, REPLY = 4, 8, 48
"""Of a step; of a group; tokens of a reply."""
AHEAD = 4
SLOTS = 64
"""Episodes at the same time."""
MEDIAN = 0.25
"""Of the tool's time, in learner's steps: the slowest of 32 then takes about two."""
WARM_STEPS = 3
LIMIT_S = 1200

SMALL = {"vocab_size": 384, "eos_token_id": 2, "hidden_size": 128, "intermediate_size": 384}
"""A step takes about two seconds of a core; the platform and the engine fit on another one."""

Show = Callable[..., None]


@dataclass(frozen=True)
class Ran:
    """What came of a run."""

    seconds: float
    versions: list[AdapterView]

    @property
    def trained(self) -> float:
        """Episodes that were trained on."""
        return sum(version.metrics["trained_episodes"] for version in self.versions)

    @property
    def per_episode(self) -> float:
        """Seconds of the run for each."""
        return self.seconds / self.trained

    @property
    def learner_per_episode(self) -> float:
        """Seconds of the learner's steps for each."""
        return sum(version.metrics["seconds"] for version in self.versions) / self.trained

    @property
    def staleness(self) -> float:
        """Mean age of the data, in versions."""
        return statistics.mean(version.metrics.get("staleness_mean", 0.0) for version in self.versions)


def save_model(folder: Path) -> Path:
    """Write a random Llama with the demo's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shutil.copytree(MODEL_DIR, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPE | SMALL)).save_pretrained(folder)
    return folder


class Tails:
    """Runs of the tail agent in one deployment."""

    def __init__(self, client: LeydenClient) -> None:
        self._client = client

    def train(self, steps: int, median_s: float, ahead: int) -> Ran:
        """Train `steps` versions."""
        run, tasks = self._new(ahead), _tasks(steps, median_s)
        self._client.upload_tasks(run, tasks, key="train")
        started = time.monotonic()
        self._client.seal(run)
        wait_for(lambda: self._client.run(run).summary.groups_consumed == len(tasks), LIMIT_S, "the last version")
        return Ran(time.monotonic() - started, self._client.adapters(run))

    def generate(self, steps: int, median_s: float) -> float:
        """Return the seconds for each episode when nothing holds generation back."""
        tasks, started = _tasks(steps, median_s), time.monotonic()
        done = evaluate(self._client, self._new(0), tasks, 0, EPISODES, poll_s=0.1, timeout_s=LIMIT_S)
        return (time.monotonic() - started) / done.n

    def _new(self, ahead: int) -> str:
        return str(self._client.create_run(_spec(ahead)).spec.id)


def _spec(ahead: int) -> RunSpec:
    algorithm = {"groups_per_step": GROUPS, "max_staleness": ahead, "correction": "tis", "kl": 0.01}
    fields: dict[str, Any] = {"base_model": MODEL, "agent": "tail_agent:run", "grader": "tail_agent:grade"}
    fields |= {"group_size": EPISODES, "sampling": {"max_tokens": REPLY}, "algorithm": algorithm}
    return RunSpec.model_validate(fields)


def _tasks(steps: int, median_s: float) -> list[TaskInput]:
    return [
        TaskInput(input={"number": number, "median_s": median_s, "text": f"Task {number}. " * 20})
        for number in range(steps * GROUPS)
    ]


def measure(folder: Path, steps: int, show: Show) -> None:
    """Measure and print."""
    options = Options(
        data_dir=folder / "data",
        model=save_model(folder / MODEL),
        model_name=MODEL,
        agent_path=HERE,
        worker_concurrency=SLOTS,
    )
    with (
        running_beside(options) as (deployment, _),
        LeydenClient(deployment.url("task_api"), deployment.token, patience_s=120) as client,
    ):
        wait_for(lambda: bool(client.replicas()), 60, "the replica")
        tails = Tails(client)
        warm = tails.train(WARM_STEPS, 0.0, 0)
        median_s = MEDIAN * statistics.median(version.metrics["seconds"] for version in warm.versions[1:])
        alone = tails.generate(steps, median_s)
        waiting, ahead = (tails.train(steps, median_s, bound) for bound in (0, AHEAD))
    slowest = max(ahead.learner_per_episode, alone)
    show("async_vs_sync", waiting.per_episode / ahead.per_episode, "x", 2, 1)
    show("async_vs_slowest_stage", ahead.per_episode / slowest, "x", 1.15, 1)
    show("async.step", ahead.seconds / steps, "s", None, waiting.seconds / steps)
    show("async.learner", ahead.learner_per_episode * GROUPS * EPISODES, "s of a step", None, alone * GROUPS * EPISODES)
    show("async.staleness", ahead.staleness, "versions", None, waiting.staleness)
    show("async.trained", ahead.trained / (steps * GROUPS * EPISODES), "of all episodes", None, 1)
