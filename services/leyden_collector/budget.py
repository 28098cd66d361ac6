"""The bytes that all requests in flight hold together, however they came."""

from collections.abc import Iterator
from contextlib import contextmanager

from leyden_collector.metrics import INFLIGHT_BYTES
from leyden_collector.refusal import Refused


class Budget:
    """The bytes that all requests in flight may hold together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @contextmanager
    def hold(self) -> Iterator["Hold"]:
        """Give back at the end whatever was taken."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self._change(-hold.taken)

    def take(self, count: int) -> None:
        """Raises Refused (429) if that is more than is left."""
        if self.used + count > self._limit:
            raise Refused(429, "too many spans are waiting to be stored; send again later")
        self._change(count)

    def _change(self, count: int) -> None:
        self.used += count
        INFLIGHT_BYTES.set(self.used)


class Hold:
    """One request's part of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        """Take `count` bytes more. Raises Refused (429)."""
        self._budget.take(count)
        self.taken += count
