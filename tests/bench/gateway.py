"""`just bench gateway`: what the gateway adds to a call, beside a bare proxy and LiteLLM; how fast versions go live.

Prints one JSON object a line. All sides of a ratio take turns in this one run; name some parts to see only those.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import gateway_calls  # noqa: E402
import gateway_publish  # noqa: E402
import gateway_streams  # noqa: E402

PARTS = ("calls", "streams", "publish")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--requests", type=int, default=600, help="a round and side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--versions", type=int, default=30, help="to publish")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(unknown)}")
    parts = asked.parts or PARTS
    if "calls" in parts:
        gateway_calls.report(asked.requests, asked.rounds)
    if "streams" in parts:
        gateway_streams.report(asked.streams)
    if "publish" in parts:
        gateway_publish.report(asked.versions)


if __name__ == "__main__":
    main()
