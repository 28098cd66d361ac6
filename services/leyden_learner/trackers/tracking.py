"""Committed versions on their way to a tracker: training never waits for it, and never hears of its trouble.

One thread of its own hands them over, in order. What it cannot hand over is dropped and counted; the run's manifests
in the object store have every figure all the same.
"""

import queue
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import structlog
from prometheus_client import Counter

from leyden_contracts import AdapterManifest, RunSpec
from leyden_learner.trackers.tracker import Tracker

log = structlog.get_logger()

DROPPED = Counter(
    "leyden_learner_tracker_dropped",
    "Versions whose figures a tracker did not get: `failed`, or `full` because it is too slow.",
    ["reason"],
)
WAITING = 1000
"""Versions that wait for the tracker at most."""


@dataclass(frozen=True, slots=True)
class _Committed:
    run: str
    config: Mapping[str, Any]
    version: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Ended:
    run: str


_Item = _Committed | _Ended | None
"""None: there is no more to come."""


class Tracking:
    """Hands every run's committed versions to a tracker, or to none."""

    def __init__(self, make: Callable[[], Tracker] | None = None, waiting: int = WAITING) -> None:
        self._make = make
        self._items: queue.Queue[_Item] = queue.Queue(waiting)
        self._trackers: dict[str, Tracker] = {}
        # A daemon: a tracker that hangs does not keep the process alive.
        self._thread = Thread(target=self._work, name="tracker", daemon=True) if make else None
        if self._thread:
            self._thread.start()

    def committed(self, spec: RunSpec, manifests: Sequence[AdapterManifest]) -> None:
        """Say that a version of all roles is in the object store. Returns at once."""
        if self._thread:
            config = {"base_model": spec.base_model, "group_size": spec.group_size, "seed": spec.seed}
            config |= spec.algorithm.model_dump(mode="json")
            found = {f"{one.role}/{name}": value for one in manifests for name, value in one.metrics.items()}
            self._put(_Committed(str(spec.id), config, manifests[-1].version, found))

    def ended(self, run: str) -> None:
        """Say that nothing more comes of a run. Returns at once."""
        if self._thread:
            self._put(_Ended(run))

    def close(self, seconds: float) -> None:
        """Hand over what waits, for so long at most."""
        if self._thread:
            with suppress(queue.Full):
                # In a full queue, this waits for a place as long as for all the rest.
                self._items.put(None, timeout=seconds)
                self._thread.join(seconds)

    def _put(self, item: _Item) -> None:
        try:
            self._items.put_nowait(item)
        except queue.Full:
            DROPPED.labels("full").inc()

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            if isinstance(item, _Ended):
                self._finish(item.run)
            else:
                self._hand_over(item)
        for run in list(self._trackers):
            self._finish(run)

    def _hand_over(self, item: _Committed) -> None:
        try:
            if item.run not in self._trackers:
                self._trackers[item.run] = self._begin(item)
            self._trackers[item.run].log(item.version, item.metrics)
        except Exception as error:
            # The next version finds the tracker's run again, or begins it.
            self._trackers.pop(item.run, None)
            DROPPED.labels("failed").inc()
            log.warning("tracker_failed", run=item.run, version=item.version, reason=repr(error))

    def _begin(self, item: _Committed) -> Tracker:
        assert self._make
        tracker = self._make()
        tracker.start(item.run, item.config)
        return tracker

    def _finish(self, run: str) -> None:
        tracker = self._trackers.pop(run, None)
        try:
            if tracker:
                tracker.finish()
        except Exception as error:
            log.warning("tracker_failed", run=run, reason=repr(error))


NO_TRACKING = Tracking()
