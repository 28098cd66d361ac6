"""What a tracker can do: the whole of what Leyden asks of one."""

from collections.abc import Mapping
from typing import Any, Protocol

PROJECT = "leyden"
"""Where runs are kept unless the tracker's own environment says otherwise."""


class Tracker(Protocol):
    """One run in somebody's tracker. Its methods may raise anything, and may take long."""

    def start(self, run: str, config: Mapping[str, Any]) -> None:
        """Open the tracker's run for `run`; go on with it where there is one already."""

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Keep the figures of a policy version, which is the step; they are named `role/figure`."""

    def finish(self) -> None:
        """Say that there is no more to come from this process."""
