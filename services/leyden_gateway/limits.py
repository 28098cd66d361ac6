"""How many calls may be under way at once, for the whole gateway and for each run, so that no run starves another."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from leyden_gateway import metrics
from leyden_gateway.errors import ApiError


class Limits:
    """Counts calls in flight."""

    def __init__(self, most: int, most_of_a_run: int) -> None:
        self._most = most
        self._most_of_a_run = most_of_a_run
        self._by_run: Counter[str] = Counter()
        metrics.IN_FLIGHT.set_function(self._by_run.total)

    @contextlib.contextmanager
    def call(self, run: str) -> Iterator[None]:
        """Count a call of `run`. Raises ApiError: 503 if the gateway is full, 429 if the run has its share."""
        if self._by_run.total() >= self._most:
            raise ApiError(503, "gateway_full", f"{self._most} calls are under way; try again", retry=True)
        if self._by_run[run] >= self._most_of_a_run:
            message = f"run `{run}` has {self._most_of_a_run} calls under way; try again"
            raise ApiError(429, "too_many_at_once", message, retry=True)
        self._by_run[run] += 1
        try:
            yield
        finally:
            self._by_run[run] -= 1
            if not self._by_run[run]:
                del self._by_run[run]
