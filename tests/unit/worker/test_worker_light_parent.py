"""What a warm parent imports is paid for by every fork."""

import subprocess
import sys

DEAR = {"threading", "logging", "random", "asyncio"}
"""The first three do something in every child; the last brings them along."""


def test_a_warm_parent_imports_nothing_that_makes_forks_dear() -> None:
    code = f"import sys, leyden_worker.warm_parent; print(*sorted({DEAR!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
