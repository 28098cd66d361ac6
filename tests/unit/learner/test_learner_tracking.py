"""Figures on their way to a tracker: in order, and without training ever waiting."""

import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from prometheus_client import REGISTRY

from leyden_contracts import AdapterManifest
from leyden_learner.settings import LearnerSettings
from leyden_learner.trackers.installed import TrackerMissing, find_tracker
from leyden_learner.trackers.tracking import NO_TRACKING, Tracking
from support.learning import RUN, make_spec


def manifest(version: int, role: str = "policy", **metrics: float) -> AdapterManifest:
    return AdapterManifest(
        run=RUN,
        role=role,
        version=version,
        parent=version - 1,
        files={},
        groups=[],
        trained_episodes=[],
        skipped={},
        probes=[],
        metrics={"loss": 0.5} | metrics,
        config={},
        created=0,
    )


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("leyden_learner_tracker_dropped_total", {"reason": reason}) or 0.0


class Notebook:
    """A tracker that writes down what it is told; it fails on the versions of `failing`."""

    def __init__(self, told: list[Any], failing: set[int]) -> None:
        self.told, self.failing = told, failing

    def start(self, run: str, config: Mapping[str, Any]) -> None:
        self.told.append(("start", run, config["base_model"]))

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        if version in self.failing:
            self.failing.remove(version)
            raise OSError("down")
        self.told.append((version, dict(metrics)))

    def finish(self) -> None:
        self.told.append("finish")


def test_versions_of_all_roles_come_in_order_and_the_end_last():
    told: list[Any] = []
    tracking = Tracking(lambda: Notebook(told, set()))

    for version in (1, 2):
        tracking.committed(make_spec(), [manifest(version, "writer", tokens=7), manifest(version, "checker")])
    tracking.ended(RUN)
    tracking.close(60)

    figures = {"writer/loss": 0.5, "writer/tokens": 7, "checker/loss": 0.5}
    assert told == [("start", RUN, "tiny"), (1, figures), (2, figures), "finish"]


def test_a_tracker_that_fails_loses_that_version_and_is_begun_again():
    told: list[Any] = []
    before = dropped("failed")
    tracking = Tracking(lambda: Notebook(told, {2}))

    for version in (1, 2, 3):
        tracking.committed(make_spec(), [manifest(version)])
    tracking.close(60)

    assert [one[0] for one in told] == ["start", 1, "start", 3, "f"]
    assert dropped("failed") == before + 1


def test_without_a_tracker_nothing_is_kept():
    NO_TRACKING.committed(make_spec(), [manifest(1)])
    NO_TRACKING.close(60)

    assert NO_TRACKING._items.empty()


@pytest.fixture
def hanging_wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """A `wandb` that hangs in `init` until the second event; the first one says that it does."""
    begun, released = Event(), Event()

    def init(**options: Any) -> None:
        begun.set()
        released.wait()

    module = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.init, module.Settings = init, dict
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delitem(sys.modules, "leyden_learner.trackers.to_wandb", raising=False)
    yield begun, released
    released.set()
    sys.modules.pop("leyden_learner.trackers.to_wandb", None)


def test_a_tracker_that_hangs_holds_up_nobody(hanging_wandb: tuple[Event, Event]):
    begun, _ = hanging_wandb
    before = dropped("full")
    tracking = Tracking(find_tracker("wandb"), waiting=2)
    tracking.committed(make_spec(), [manifest(1)])
    assert begun.wait(60)

    for version in range(2, 7):
        tracking.committed(make_spec(), [manifest(version)])
    tracking.close(0.01)

    assert dropped("full") == before + 3


def test_one_that_is_not_installed_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("leyden_learner.trackers.installed.find_spec", lambda name: None)

    assert find_tracker("none") is None
    with pytest.raises(TrackerMissing, match=r"pip install 'leyden\[mlflow\]'"):
        find_tracker("mlflow")


def test_no_tracker_is_used_unless_it_is_named():
    assert LearnerSettings().tracker == "none"
