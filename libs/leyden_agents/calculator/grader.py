"""Grade the calculator agent: is the last number it said the right one?"""

import re
from typing import Any


def grade(task: dict[str, Any], output: Any) -> float:
    """Return 1.0 if the last whole number in `output` is `task["expected"]`, else 0.0."""
    numbers = re.findall(r"-?\d+", output) if isinstance(output, str) else []
    return 1.0 if numbers and int(numbers[-1][:20]) == task["expected"] else 0.0
