"""kill -9 of the learner between its commit and its word to the ledger: each step is taken once."""

from pathlib import Path

import pytest

from support.loop import deployed, small_spec, train_small, violations

STEPS = 3


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["learner.written=kill", "learner.committed=kill", "learner.published=kill@2"])
def test_killed_after_each_commit(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A learner that starts again announces its newest version: the second passage is the step that it then takes.
    monkeypatch.setenv("LEYDEN_FAILPOINTS", point)
    with deployed(tmp_path / "data") as (deployment, supervisor, client):
        first = supervisor.pids["learner"]
        result = train_small(client, small_spec(), STEPS, tmp_path)
        assert result.version == STEPS
        assert supervisor.pids["learner"] != first
        assert violations(deployment, result.run) == []
    log = (tmp_path / "data/logs/learner.log").read_text()
    assert log.count(f"failpoint: {point.partition('=')[0]}: kill") >= STEPS - 1


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_killed_after_each_commit_of_a_step_that_waited_for_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a step consumed and asked for is known again after kill -9, and every group ends in one step."""
    monkeypatch.setenv("LEYDEN_FAILPOINTS", "learner.committed=kill")
    # Of two episodes, both often succeed or fail: many groups have no signal.
    spec = small_spec(groups_per_step=2, selection={"dynamic": True}).model_copy(update={"group_size": 2})
    with deployed(tmp_path / "data") as (deployment, _, client):
        result = train_small(client, spec, 2 * STEPS, tmp_path)
        assert 1 < result.version <= 2 * STEPS
        summary = result.final.summary
        assert (summary.groups_consumed, summary.groups_finished) == (4 * STEPS, 4 * STEPS)
        assert summary.groups_asked > 0, "or nothing is shown"
        assert violations(deployment, result.run) == []
    log = (tmp_path / "data/logs/learner.log").read_text()
    assert log.count("failpoint: learner.committed: kill") >= result.version - 1
