"""An agent that lives in an environment of its own: Leyden's worker calls `run`, which starts the agent's own Python.

A task's input is a dict: the `environment`'s name, the `command` to run there (its files are in this folder), the
`question`, which is its last argument, and the `variables` to set for it.
"""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1]


def run(task):
    """Return the last line that the agent printed."""
    programs = ENVIRONMENTS / f".venv-{task['environment']}/bin"
    program, *arguments = task["command"]
    # What it got from the worker is what any agent gets; only Leyden's own Python packages are not for it.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", **task.get("variables", {})}
    command = [str(programs / program), *arguments, task["question"]]
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


def right(task, output):
    """Grade: whether the sum is in it."""
    return float(task["expected"] in output)
