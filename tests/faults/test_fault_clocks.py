"""Services whose clocks are hours apart: only Redis's clock decides who runs what, and when a lease is over."""

from pathlib import Path

import pytest

from support.faults import CALLS, Fleet, lines, until

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
HOURS = [
    {"worker": -1, "task_api": 0, "collector": 0, "gateway": 1},
    {"worker": 1, "task_api": -1, "collector": 1, "gateway": -1},
]


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed: `just servers` does that")
@pytest.mark.parametrize("hours", HOURS, ids=str)
def test_clocks_hours_apart(fleet: Fleet, hours: dict[str, int], tmp_path: Path) -> None:
    for name, offset in hours.items():
        fleet.start(name, wait=False, **skewed(offset))
    for name in hours:
        fleet.ready(name)
    run = fleet.new_run([CALLS] * 6)
    assert fleet.outcome(run, 6) == {"succeeded": 6}
    # A lease that runs out, and another worker with yet another clock.
    note, gate = tmp_path / "note", tmp_path / "gate"
    run = fleet.new_run([[{"call": 1}, {"tell": str(note)}, {"await": str(gate)}]])
    until(lambda: lines(note))
    fleet.lose_host("worker")
    fleet.start("worker", **skewed(-hours["worker"]))
    gate.touch()
    assert fleet.outcome(run, 1) == {"succeeded": 1}
    assert [attempt for _, attempt in lines(note)] == ["1", "2"]


def skewed(hours: int) -> dict[str, str]:
    """Return the environment of a process whose clock is `hours` ahead."""
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
