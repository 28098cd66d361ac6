"""A run with a start through the whole platform; the learner is killed between the start's commit and its word."""

import json
from pathlib import Path
from random import Random

import pytest

from leyden_agents.calculator.agent import CALCULATOR
from leyden_agents.calculator.demonstrations import demonstration
from leyden_agents.calculator.tasks import eval_tasks, train_tasks
from leyden_client.training import train
from leyden_contracts import RunSpec, TaskInput
from support.loop import deployed, small_spec, violations

STEPS = 2


def inputs(rows: list[dict]) -> list[TaskInput]:
    return [TaskInput.model_validate(row) for row in rows]


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_warm_start_then_reinforcement_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEYDEN_FAILPOINTS", "learner.start_committed=kill")
    data, rng = tmp_path / "start.jsonl", Random(0)
    lines = ({"messages": demonstration(rng, clean=True), "tools": [CALCULATOR]} for _ in range(160))
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    start = {"kind": "sft", "epochs": 2, "learning_rate": 2e-3, "batch_size": 16}
    spec = RunSpec.model_validate(small_spec().model_dump(mode="json") | {"start": start})
    tasks = inputs(train_tasks(STEPS * spec.algorithm.groups_per_step, 0))
    with deployed(tmp_path / "data") as (deployment, supervisor, client):
        first = supervisor.pids["learner"]
        held_out = inputs(eval_tasks(40, 0))

        result = train(client, spec, tasks, STEPS, eval_tasks=held_out, start=data, folder=tmp_path)

        assert supervisor.pids["learner"] != first
        assert result.version == STEPS + 1
        assert result.before and result.after
        assert result.after.success > result.before.success + 0.2
        assert violations(deployment, result.run) == []
        lineage = client.lineage(result.run, result.version)
        assert lineage.start and (lineage.start.kind, lineage.start.samples) == ("sft", 160)
        assert lineage.parents == list(range(STEPS, -1, -1))

        # Another run begins where this one ended.
        warm = {"kind": "adapter", "run": result.run, "version": result.version}
        again = RunSpec.model_validate(small_spec().model_dump(mode="json") | {"start": warm})
        second = train(client, again, tasks[: spec.algorithm.groups_per_step], 1, folder=tmp_path)
        assert second.version == 2
        assert violations(deployment, second.run) == []
    assert (tmp_path / "data/logs/learner.log").read_text().count("failpoint: learner.start_committed: kill") == 2
