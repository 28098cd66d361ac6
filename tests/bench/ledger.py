"""`just bench ledger`: what accepting, ringing, recovering and remembering cost, beside Celery's own.

Prints one JSON object a line. Both sides of a ratio take turns in this one run; names given choose some of the figures.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import ledger_enqueue  # noqa: E402


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help="enqueue; default: all")
    parser.add_argument("--tasks", type=int, default=100_000, help="to accept and ring for")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    ledger_enqueue.report(asked.tasks, asked.rounds)


if __name__ == "__main__":
    main()
