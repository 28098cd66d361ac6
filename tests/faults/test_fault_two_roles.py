"""Two trained roles through the whole platform, the learner killed between their manifests at every second step."""

import os
from pathlib import Path

import pytest

from leyden_client.training import train
from leyden_contracts import RunSpec, TaskInput
from leyden_learner.checkpoint import read_manifest
from leyden_storage.trajectories import stored_trajectories
from support.loop import deployed, small_spec, stored, violations

AGENTS = Path(__file__).parent / "agents"
ROLES = {"checker", "writer"}
STEPS = 3


def two_roles() -> RunSpec:
    spec = small_spec().model_dump(mode="json")
    spec |= {"agent": "writer_checker:play", "grader": "writer_checker:grade", "roles": {role: {} for role in ROLES}}
    return RunSpec.model_validate(spec)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_both_roles_are_trained_and_served_as_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(AGENTS), os.environ.get("PYTHONPATH", "")]))
    # The second passage of a process: the first step of the first one is whole.
    monkeypatch.setenv("LEYDEN_FAILPOINTS", "learner.followed=kill@2")
    spec = two_roles()
    groups = STEPS * spec.algorithm.groups_per_step
    tasks = [TaskInput(input={"question": f"{n} + {n + 1}"}) for n in range(groups)]
    with deployed(tmp_path / "data") as (deployment, supervisor, client):
        first = supervisor.pids["learner"]
        result = train(client, spec, tasks, STEPS, folder=tmp_path)
        assert result.version == STEPS
        assert supervisor.pids["learner"] != first
        assert violations(deployment, result.run) == []
        store = stored(deployment)
    manifests = {role: [read_manifest(store, result.run, role, v) for v in range(1, STEPS + 1)] for role in ROLES}
    assert all(one.metrics["refused"] == 0 and one.metrics["tokens"] > 0 for own in manifests.values() for one in own)
    assert [one.groups for one in manifests["checker"]] == [one.groups for one in manifests["writer"]]
    # On-policy: step n was sampled from version n - 1 of both roles.
    steps = {group: one.parent for one in manifests["checker"] for group in one.groups}
    for trajectory in stored_trajectories(store, result.run):
        calls = {(call.role, call.policy_version) for call in trajectory.transitions}
        assert calls == {(role, steps[trajectory.group]) for role in ROLES}
