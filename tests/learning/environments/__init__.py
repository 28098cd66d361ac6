"""The agents of the lab. `make(seed, folder)` gives an agent with its model, which it may write into `folder`."""

from collections.abc import Callable
from pathlib import Path

from learning.environments import calculator, planner_solver, three_calls
from learning.playing import Environment

Make = Callable[[int, Path], Environment]
ENVIRONMENTS: dict[str, Make] = {
    "calculator": calculator.make,
    "three_calls": three_calls.make,
    "planner_solver": planner_solver.make,
}
