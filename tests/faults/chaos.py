"""`just faults`: a chaos mix. One JSON object a seed, and a total; exit code 1 unless nothing is lost or doubled.

Usage: `python tests/faults/chaos.py --seeds 20 --seconds 20`.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from leyden_runtime.logs import configure_logs
from support.chaos import Books, play_seed
from support.faults import QUICK
from support.loop import deployed


def main() -> None:
    """Play the seeds and print what became of the episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=20, help="of killing, each seed")
    asked = parser.parse_args()
    configure_logs("chaos")
    os.environ.update(QUICK)
    all_books: list[Books] = []
    all_kills, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, deployed(Path(folder)) as (deployment, supervisor, client):
        for seed in range(asked.first, asked.first + asked.seeds):
            started = time.monotonic()
            books, kills = play_seed(deployment, supervisor, client, seed, asked.seconds)
            show({"seed": seed, **asdict(books), "kills": kills}, started)
            all_books.append(books)
            all_kills += sum(kills.values())
    show(total(all_books) | {"kills": all_kills}, began)
    raise SystemExit(0 if all(books.clean for books in all_books) else 1)


def total(all_books: list[Books]) -> dict[str, int]:
    """Return the sums over all seeds."""
    sums = {name: sum(getattr(one, name) for one in all_books) for name in ("accepted", "ended", "lost", "doubled")}
    unclean = sum(not books.clean for books in all_books)
    return {"seeds": len(all_books), **sums, "unclean": unclean}


def show(figures: dict[str, object] | dict[str, int], started: float) -> None:
    """Print one line."""
    print(json.dumps({**figures, "seconds": round(time.monotonic() - started, 1)}), flush=True)


if __name__ == "__main__":
    main()
