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
