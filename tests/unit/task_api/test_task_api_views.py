"""What is shown of a trajectory is all that is stored of it."""

from leyden_contracts import Trajectory, Transition
from leyden_contracts.api import CallView, TrajectoryView

_OF_THE_TRAJECTORY = {"run", "episode", "attempt"}


def test_a_call_shows_every_field() -> None:
    assert CallView.model_fields.keys() == Transition.model_fields.keys() - _OF_THE_TRAJECTORY


def test_a_trajectory_shows_every_field() -> None:
    assert TrajectoryView.model_fields.keys() - {"calls"} == Trajectory.model_fields.keys() - {"transitions"}
