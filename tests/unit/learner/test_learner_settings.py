"""How a deployment says how steps are computed."""

import pytest

from leyden_learner.compute import DEFAULT, Compute, Precision, Sharding
from leyden_learner.settings import LearnerSettings
from leyden_runtime.settings import load_settings


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEYDEN_REDIS_URL", "redis://localhost:1/0")
    monkeypatch.setenv("LEYDEN_STORE_URL", "file:///tmp/nowhere")


def test_by_default_a_step_is_exact_and_shares_prefixes():
    assert load_settings(LearnerSettings).compute == DEFAULT == Compute(Precision.FLOAT32, False, True)


def test_each_choice_reaches_the_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEYDEN_LEARNER_PRECISION", "bfloat16")
    monkeypatch.setenv("LEYDEN_LEARNER_GRADIENT_CHECKPOINTING", "true")
    monkeypatch.setenv("LEYDEN_LEARNER_SHARED_PREFIXES", "false")

    assert load_settings(LearnerSettings).compute == Compute(Precision.BFLOAT16, True, False)


def test_an_unknown_precision_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEYDEN_LEARNER_PRECISION", "float16")

    with pytest.raises(SystemExit):
        load_settings(LearnerSettings)


def test_several_processes_may_shard_the_base(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEYDEN_LEARNER_SHARDING", "fsdp2")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert load_settings(LearnerSettings).compute == Compute(sharding=Sharding.FSDP2)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({}, "start several with torchrun"),
        ({"WORLD_SIZE": "2", "LEYDEN_LEARNER_GRADIENT_CHECKPOINTING": "1"}, "drop one"),
    ],
)
def test_sharding_that_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], others: dict[str, str], reason: str
):
    for name, value in {"LEYDEN_LEARNER_SHARDING": "fsdp2", **others}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit) as stopped:
        load_settings(LearnerSettings)

    assert stopped.value.code == 2
    assert reason in capsys.readouterr().err
