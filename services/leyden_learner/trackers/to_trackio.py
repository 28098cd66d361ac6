"""Trackio: a local folder (TRACKIO_DIR), a server (TRACKIO_SERVER_URL) or a space (TRACKIO_SPACE_ID)."""

import os
from collections.abc import Mapping
from contextvars import Context
from typing import Any

import trackio

from leyden_learner.trackers.tracker import PROJECT


class TrackioTracker:
    """A run of Trackio, whose name is the run's."""

    def start(self, run: str, config: Mapping[str, Any]) -> None:
        """Begin the run, or go on with it."""
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        # In a context of its own: otherwise it would end the run that was begun before it.
        self._run = Context().run(
            trackio.init, project, name=run, config=dict(config), resume="allow", embed=False, auto_log_gpu=False
        )

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Keep a version's figures."""
        self._run.log(dict(metrics), step=version)

    def finish(self) -> None:
        """Send what is left."""
        self._run.finish()
