"""Which tracker there is."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from leyden_learner.trackers.tracker import Tracker

TrackerName = Literal["none", "mlflow", "wandb", "trackio"]
_CLASSES = {"mlflow": "MlflowTracker", "wandb": "WandbTracker", "trackio": "TrackioTracker"}


class TrackerMissing(Exception):
    """The tracker that is asked for is not installed."""


def find_tracker(name: TrackerName) -> Callable[[], Tracker] | None:
    """Return what makes a run's tracker; None: none is wanted. Imports nothing yet. Raises TrackerMissing."""
    if name == "none":
        return None
    if find_spec(name) is None:
        raise TrackerMissing(f"{name} is not installed: `pip install 'leyden[{name}]'`, or use `none`")
    return lambda: _make(name)


def _make(name: str) -> Tracker:
    made: Any = getattr(import_module(f"leyden_learner.trackers.to_{name}"), _CLASSES[name])
    tracker: Tracker = made()
    return tracker
