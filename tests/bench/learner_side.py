"""One side of `just bench learner`: a process that takes one step for every line it reads, and answers what it cost.

Each answer is a line of JSON: `cpu_s` of the step, and `peak_mb`, the most memory of the first step beyond what the
process held before it. With LEYDEN_BENCH_DEVICE=cuda, `cpu_s` is by the wall clock, and the memory is the GPU's.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CUDA = os.environ.get("LEYDEN_BENCH_DEVICE") == "cuda"
# What libraries print goes elsewhere: the pipe is for answers.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Meter:
    """Measures the steps of this process."""

    def __init__(self) -> None:
        self.peak_mb: float | None = None

    def ready(self, **facts: Any) -> None:
        """Say that the first line may come."""
        _answer(facts)

    def wait(self) -> bool:
        """Wait for a line; False when there are no more."""
        if not sys.stdin.readline():
            return False
        self._before = _memory_before()
        self._started = _clock()
        return True

    def done(self, **facts: Any) -> None:
        """Answer what the step cost."""
        seconds = _clock() - self._started
        if self.peak_mb is None:
            self.peak_mb = _peak() - self._before
        _answer({"cpu_s": seconds, "peak_mb": self.peak_mb} | facts)


def serve(step: Callable[[], dict[str, Any]], **facts: Any) -> None:
    """Take a step for every line."""
    meter = Meter()
    meter.ready(**facts)
    while meter.wait():
        meter.done(**step())


def _answer(facts: dict[str, Any]) -> None:
    _answers.write(json.dumps(facts) + "\n")
    _answers.flush()


def _clock() -> float:
    if not CUDA:
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _memory_before() -> float:
    """Forget the peak so far, and return what is held, in MiB."""
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _peak() -> float:
    return torch.cuda.max_memory_allocated() / 2**20 if CUDA else _memory("VmHWM")


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
