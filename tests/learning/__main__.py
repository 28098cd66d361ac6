"""`just learning`: run what is missing of the grid, then write the table and the picture.

Exits with 1 where a negative control improved, an agent that must learn did not, or a cell failed.
"""

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import structlog
from transformers.utils.logging import disable_progress_bar

from learning import page, plot
from learning.cells import run_cell, settings
from learning.findings import findings, problems
from learning.grid import SEEDS, STUDIES, Cell, all_cells
from learning.results import Result, append, load, newest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "infra/docs"
_LEAST_SEEDS = 5


def main() -> int:
    """Run, write, judge."""
    args = _arguments()
    cells = [cell for cell in all_cells(args.seeds) if not args.study or cell.study in args.study]
    run_missing(cells, args.results, args.processes)
    done = current(cells, load(args.results))
    if len(done) < len(cells):
        print(f"WRONG: {len(cells) - len(done)} cells have no result; run it again for those alone")
        return 1
    found = list(findings(done))
    for one in found:
        print(f"{one.study.name:12} {one.strategy.name:18} gain {one.gain}  {one.verdict}")
    whole = args.seeds >= _LEAST_SEEDS and not args.study
    if whole:
        plot.draw(DOCS / "learning.png", found, done)
        page.write(DOCS / "learning.md", DOCS / "learning.png", found, sum(one.cpu_s for one in done))
    else:
        print(f"the docs stay as they are: they take all studies, and {_LEAST_SEEDS} seeds or more")
    wrong = problems(found)
    print("\n".join(f"WRONG: {one}" for one in wrong))
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just learning", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--study", action="append", choices=list(STUDIES), help="only this one (may be repeated)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of one thread each")
    parser.add_argument("--results", type=Path, default=ROOT / ".leyden/learning.jsonl")
    return parser.parse_args()


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


if __name__ == "__main__":
    sys.exit(main())
