"""`just bench ledger`: what accepting, ringing, running, recovering and remembering cost, beside stock Celery's cost.

Prints one JSON object a line. Both sides of a ratio take turns in this one run; name some parts to see only those.
Takes about five minutes, two of them for Celery to notice that a worker is dead.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import ledger_cpu  # noqa: E402
import ledger_enqueue  # noqa: E402
import ledger_memory  # noqa: E402
import ledger_recovery  # noqa: E402

PARTS = ("recovery", "enqueue", "cpu", "memory")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--tasks", type=int, default=100_000, help="to accept and ring for")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deaths", type=int, default=4, help="of our worker")
    parser.add_argument("--noops", type=int, default=1000, help="no-op episodes, and Celery tasks, to run in all")
    parser.add_argument("--episodes", type=int, default=50_000, help="to play and archive")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(unknown)}")
    run(asked)


def run(asked: argparse.Namespace) -> None:
    """Measure and print what is asked for."""
    parts = asked.parts or PARTS
    with ThreadPoolExecutor(1) as pool:
        # It only waits, so it waits beside the others.
        theirs = pool.submit(ledger_recovery.celery) if "recovery" in parts else None
        if "enqueue" in parts:
            ledger_enqueue.report(asked.tasks, asked.rounds)
        if "cpu" in parts:
            ledger_cpu.report(-(-asked.noops // 4), 4)
        if "memory" in parts:
            ledger_memory.report(asked.tasks, asked.episodes)
        if theirs:
            ledger_recovery.report(theirs.result(), asked.deaths)


if __name__ == "__main__":
    main()
