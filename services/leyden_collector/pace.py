"""Which runs to ask for closed attempts, and when: those with recent spans often, all others now and then."""

import time
from collections.abc import Callable, Iterable

_HOT_S = 60.0
"""An attempt is usually closed within this after its last call."""


class Pace:
    """The assembler's timetable."""

    def __init__(self, poll_s: float, sweep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.poll_s = poll_s
        self._sweep_s = sweep_s
        self._clock = clock
        self._touched: dict[str, float] = {}
        self._others: list[str] = []
        self._swept = float("-inf")

    def touch(self, run: str) -> None:
        """Note that spans of `run` have been stored."""
        self._touched[run] = self._clock()

    def sweep_due(self) -> bool:
        """Say whether it is time to ask all runs."""
        return self._clock() - self._swept >= self._sweep_s

    def swept(self, runs: Iterable[str]) -> None:
        """Have all `runs` asked once, the next time."""
        self._swept = self._clock()
        self._others = list(runs)

    def runs(self) -> list[str]:
        """Return the runs to ask now."""
        oldest = self._clock() - _HOT_S
        self._touched = {run: at for run, at in self._touched.items() if at >= oldest}
        others, self._others = self._others, []
        return list(dict.fromkeys([*self._touched, *others]))
