"""Sets the line numbers in lightningrl.md anew: each "`name`: `file:line`" to where the file defines the name."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).parent / "lightningrl.md"
CITATION = re.compile(r"`(\w+)`: `([\w/.-]+):(\d+)`")


def line_of(name: str, file: str) -> int:
    """Return the line on which `file` defines `name`. Raises LookupError if it does not."""
    definition = re.compile(rf"\s*(?:async\s+)?(?:def|class)\s+{name}\b|\s*{name}(?::[^=]+)?\s*=|\s*{name}:")
    for number, line in enumerate((ROOT / file).read_text().splitlines(), start=1):
        if definition.match(line):
            return number
    raise LookupError(f"{file} does not define {name}")


def refreshed(page: str) -> str:
    """Return the page with right line numbers."""
    return CITATION.sub(lambda found: f"`{found[1]}`: `{found[2]}:{line_of(found[1], found[2])}`", page)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))
