"""The real MLflow, Weights & Biases and Trackio, in their local modes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from support import tracker_rounds

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-trackers/bin/python"


@pytest.mark.trackers
@pytest.mark.parametrize("name", ["mlflow", "wandb", "trackio"])
def test_a_tracker_holds_each_version_of_each_run_once_over_a_restart(name: str, tmp_path: Path):
    own = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "WANDB_MODE": "offline", "TRACKIO_DIR": "trackio"}

    def use(*versions: str) -> str:
        command = [str(PYTHON), tracker_rounds.__file__, name, *versions]
        done = subprocess.run(
            command, env=os.environ | own, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=True
        )
        return done.stdout

    use("1", "2")
    use("3")

    held = json.loads(use().splitlines()[-1])
    assert held == {
        run: [[version, version / 8 + place] for version in (1, 2, 3)] for place, run in enumerate(tracker_rounds.RUNS)
    }
