"""MLflow: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and its other variables say where."""

import os
import time
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from leyden_learner.trackers.tracker import PROJECT

_TAG = "leyden.run"
_AT_ONCE = 100
"""Parameters that MLflow takes in one request."""
_LONGEST = 500
"""Characters of a parameter."""


class MlflowTracker:
    """A run of MLflow, found again by its tag; made without MLflow's global "active run", for there may be several."""

    def start(self, run: str, config: Mapping[str, Any]) -> None:
        """Find or make the run."""
        self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{run}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(experiment, tags={_TAG: run}, run_name=run).info.run_id
        params = [Param(key, str(value)[:_LONGEST]) for key, value in config.items()]
        for start in range(0, len(params), _AT_ONCE):
            self._client.log_batch(self._id, params=params[start : start + _AT_ONCE])

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Keep a version's figures."""
        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, version) for name, value in metrics.items()])

    def finish(self) -> None:
        """Close the run."""
        self._client.set_terminated(self._id)
