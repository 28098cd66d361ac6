"""Weights & Biases: WANDB_API_KEY, WANDB_PROJECT, WANDB_MODE and its other variables say where and how."""

import os
from collections.abc import Mapping
from typing import Any

import wandb

from leyden_learner.trackers.tracker import PROJECT


class WandbTracker:
    """A run of Weights & Biases, whose id is the run's."""

    def start(self, run: str, config: Mapping[str, Any]) -> None:
        """Begin the run, or go on with it."""
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run,
            name=run,
            config=dict(config),
            resume="allow",
            # Several runs may be trained side by side.
            reinit="create_new",
            # The learner's logs and the machine are watched elsewhere.
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
        )

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Keep a version's figures."""
        self._run.log(dict(metrics), step=version)

    def finish(self) -> None:
        """Send what is left."""
        self._run.finish()
