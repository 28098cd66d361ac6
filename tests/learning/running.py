"""Runs what is missing of the grid, in several processes."""

import logging
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import structlog
from transformers.utils.logging import disable_progress_bar

from learning.cells import run_cell, settings
from learning.grid import STUDIES, Cell
from learning.results import Result, append, load, newest


def current(cells: Sequence[Cell], results: Sequence[Result]) -> list[Result]:
    """Return the newest result of each cell, where it was made with the settings of today."""
    known = newest(results)
    found = [(cell, known.get((cell.study, cell.strategy, cell.seed))) for cell in cells]
    return [result for cell, result in found if result and result.settings == _settings(cell)]


def run_missing(cells: Sequence[Cell], path: Path, processes: int) -> None:
    """Run what has no current result; each is written as soon as it is there."""
    there = {(one.study, one.strategy, one.seed) for one in current(cells, load(path))}
    missing = [cell for cell in cells if (cell.study, cell.strategy, cell.seed) not in there]
    print(f"{len(cells) - len(missing)} of {len(cells)} cells are there", flush=True)
    # Spawned, not forked: torch's threads do not survive a fork. Each reads the number of threads as it starts.
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), quiet) as pool:
        try:
            running = {pool.submit(run_cell, cell): cell for cell in missing}
            for number, future in enumerate(as_completed(running), 1):
                cell, problem = running[future], future.exception()
                if not problem:
                    append(path, future.result())
                said = repr(problem) if problem else _figures(future.result())
                print(f"[{number}/{len(missing)}] {cell.study}, {cell.strategy}, seed {cell.seed}: {said}", flush=True)
        finally:
            # On Ctrl-C: what has not begun never does.
            pool.shutdown(cancel_futures=True)


def quiet() -> None:
    """Let libraries and the learner say only what is wrong."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    disable_progress_bar()


def _figures(one: Result) -> str:
    return f"{one.before:.3f} -> {one.after:.3f}, {one.cpu_s:.0f} CPU s"


def _settings(cell: Cell) -> str:
    study = STUDIES[cell.study]
    return settings(study, study.strategy(cell.strategy), cell.seed)
