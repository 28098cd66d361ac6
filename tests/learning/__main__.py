"""`just learning`: run what is missing of the grid, then write the table and the picture.

Exits with 1 where a negative control improved, an agent that must learn did not, or a cell failed.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from learning import page, plot
from learning.findings import findings, problems
from learning.grid import STUDIES, all_cells
from learning.results import load
from learning.running import current, run_missing

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
    whole = (args.seeds is None or args.seeds >= _LEAST_SEEDS) and not args.study
    if whole:
        plot.draw(DOCS / "learning.png", found, done)
        page.write(DOCS / "learning.md", DOCS / "learning.png", found, sum(one.cpu_s for one in done))
    else:
        print(f"the docs stay as they are: they take all studies, and {_LEAST_SEEDS} seeds or more")
    wrong = problems(found)
    for one in wrong:
        print(f"WRONG: {one}")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just learning", description=__doc__)
    parser.add_argument("--seeds", type=int, help="for all studies; default: as many as each has")
    parser.add_argument("--study", action="append", choices=list(STUDIES), help="only this one (may be repeated)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of one thread each")
    parser.add_argument("--results", type=Path, default=ROOT / ".leyden/learning.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    # As Ctrl-C: cells that run end, the others never begin, and no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
