"""Negative controls: what must not improve. Slow; `just controls` runs them and prints the figures."""

import json
import statistics
from pathlib import Path

import pytest

from leyden_agents.calculator.recipe import STEPS, demo_run_spec
from leyden_agents.calculator.tasks import eval_tasks, train_tasks
from leyden_client.training import train
from leyden_contracts import RunSpec, TaskInput
from support.loop import deployed

SEEDS = {"shuffled_rewards": 5}
"""Seeds of a control: three, or more where the policy walks at random and three say too little."""
EVALS = 640
"""Held-out episodes before and after: their noise alone puts a standard error of 0.027 on one gain."""
CONTROLS = {
    "shuffled_rewards": {"control": "shuffled_rewards"},
    "learning_rate_0": {"learning_rate": 0.0},
    "unpublished": {"control": "unpublished", "max_staleness": 1000},
}
T_95 = {3: 4.303, 5: 2.776}
"""Seeds -> Student's t for a two-sided 95 % interval."""


def _tasks(rows: list[dict]) -> list[TaskInput]:
    return [TaskInput.model_validate(row) for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CONTROLS)
def test_does_not_improve(name: str, tmp_path: Path) -> None:
    gains = []
    with deployed(tmp_path / "data") as (_, _, client):
        for seed in range(SEEDS.get(name, 3)):
            spec = demo_run_spec(seed).model_dump(mode="json")
            spec["algorithm"] |= CONTROLS[name]
            run = RunSpec.model_validate(spec)
            tasks = _tasks(train_tasks(STEPS * run.algorithm.groups_per_step, seed))
            result = train(client, run, tasks, STEPS, eval_tasks=_tasks(eval_tasks(EVALS, seed)), folder=tmp_path)
            assert result.before and result.after
            gains.append(result.after.success - result.before.success)
            print(json.dumps({"control": name, "seed": seed, "before": result.before.success, "gain": gains[-1]}))
    upper = statistics.mean(gains) + T_95[len(gains)] * statistics.stdev(gains) / len(gains) ** 0.5
    print(json.dumps({"control": name, "gains": gains, "upper_95": upper}))
    assert upper < 0.1
