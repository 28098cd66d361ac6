"""`just bench collector`: spans in, on disk and to trajectories, beside list attributes and Agent Lightning.

Prints one JSON object a line. All sides of a ratio take turns in this one run; name some parts to see only those.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import collector_encoding  # noqa: E402
import collector_latency  # noqa: E402
import collector_load  # noqa: E402

PARTS = ("encoding", "load", "memory", "latency")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--spans", type=int, default=40_000, help="a round of load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=1_000_000, help="spans after which memory is looked at")
    parser.add_argument("--groups", type=int, default=300, help="to announce")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(unknown)}")
    parts = asked.parts or PARTS
    if "encoding" in parts:
        collector_encoding.report()
    if "load" in parts:
        collector_load.report(asked.spans, asked.rounds)
    if "memory" in parts:
        collector_load.report_memory(asked.many // 10, asked.many)
    if "latency" in parts:
        collector_latency.report(asked.groups)


if __name__ == "__main__":
    main()
