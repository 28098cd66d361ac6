"""Agents that do nothing, quickly or for long: what is measured is what is around them."""

import os
import time
from pathlib import Path


def run(task: str) -> str:
    """Cost nothing."""
    return "done"


def note(path: str) -> str:
    """Say when and where this runs, and go on for long. An empty path: cost nothing."""
    if path:
        with Path(path).open("a") as file:
            file.write(f"{time.time()} {os.getppid()}\n")
        time.sleep(600)
    return "done"


def grade(task: dict, output: str) -> float:
    """Reward every episode."""
    return 1.0
