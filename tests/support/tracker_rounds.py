"""`PYTHON tracker_rounds.py NAME VERSION…` logs versions to a real tracker; without versions it prints what that holds.

For an environment that has the tracker and none of Leyden's dependencies.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "services"))

RUNS = ("run-a", "run-b")
"""Two at a time: neither may end up in the other's."""


def log_versions(name: str, versions: list[int]) -> None:
    from leyden_learner.trackers.installed import find_tracker

    make = find_tracker(name)
    trackers = {run: make() for run in RUNS}
    for run, tracker in trackers.items():
        tracker.start(run, {"loss": "ppo_clip", "lora": {"rank": 8}, "rewards": {}, "clip_low": None})
    for version in versions:
        for place, tracker in enumerate(trackers.values()):
            tracker.log(version, {"policy/reward_mean": version / 8 + place, "policy/loss": 0.5})
    for tracker in trackers.values():
        tracker.finish()


def held_by_mlflow(run: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("leyden").experiment_id
    runs = client.search_runs([experiment], f"tags.`leyden.run` = '{run}'")
    assert [one.data.params["loss"] for one in runs] == ["ppo_clip"]
    return [[m.step, m.value] for m in client.get_metric_history(runs[0].info.run_id, "policy/reward_mean")]


def held_by_trackio(run: str) -> list[Any]:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    (found,) = [one for one in trackio.Api().runs("leyden") if one.name == run]
    assert found.config["loss"] == "ppo_clip"
    return [[row["step"], row["policy/reward_mean"]] for row in SQLiteStorage.get_logs("leyden", run)]


def held_by_wandb(run: str) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for file in sorted(Path("wandb").glob(f"offline-run-*-{run}/run-{run}.wandb")):
        for data in records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows.append([row["_step"], row["policy/reward_mean"]])
    return rows


def records(log: bytes) -> Iterator[bytes]:
    """Yield the records of an offline run: LevelDB's log format, after a header of as many bytes as a record's."""
    at, whole = 7, b""
    while at + 7 <= len(log):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        size, kind = struct.unpack("<HB", log[at + 4 : at + 7])
        whole += log[at + 7 : at + 7 + size]
        at += 7 + size
        # Whole, or the last part of one that goes over several blocks.
        if kind in (1, 4):
            yield whole
            whole = b""


if __name__ == "__main__":
    if sys.argv[2:]:
        log_versions(sys.argv[1], [int(one) for one in sys.argv[2:]])
    else:
        print(json.dumps({run: globals()[f"held_by_{sys.argv[1]}"](run) for run in RUNS}))
