"""`leyden trajectories` and `leyden regrade` against a task API."""

import json
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from leyden_client import LeydenClient
from leyden_client.cli import app
from leyden_contracts import Trajectory
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from support.task_api import SPEC
from support.trajectories import finish_with_trajectories

GRADER = """
def grade(task, output):
    if output["answer"] is None:
        raise ValueError("there is no answer")
    return {"right": float(output["answer"] == task["expected"]), "said": 0.5}
"""


@pytest.fixture
async def made(http: httpx.Client, ledger: Ledger, store: LocalStore) -> list[Trajectory]:
    """A run of three groups of two; each second episode has no answer, and one output was cut."""
    spec = {**SPEC, "id": "mine", "algorithm": {"groups_per_step": 3}}
    assert http.post("/v1/runs", json=spec).status_code == 201
    tasks = [{"input": n, "expected": n + 1} for n in range(3)]
    assert http.post("/v1/runs/mine/tasks", json=tasks).status_code == 202
    groups = [one["group"] for one in http.get("/v1/runs/mine/episodes").json()["episodes"]]

    def output(episode: object) -> object:
        number = groups.index(episode.group) // 2  # type: ignore[attr-defined]
        if episode.index == 0:  # type: ignore[attr-defined]
            return {"answer": number + (number < 2)}
        return {"answer": None} if number else "x" * 16384

    return await finish_with_trajectories(ledger, store, "mine", output=output)


@pytest.fixture
def leyden(api: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["--api-url", api, "--api-token", token, *arguments])

    return run


def test_trajectories_are_listed_and_shown(leyden, made: list[Trajectory], client: LeydenClient) -> None:
    listed = leyden("trajectories", "ls", "mine")
    assert listed.exit_code == 0 and all(one.episode in listed.output for one in made)
    heads = json.loads(leyden("trajectories", "ls", "mine", "--group", made[0].group, "--json").output)
    assert [head["episode"] for head in heads] == [made[0].episode, made[1].episode]
    shown = json.loads(leyden("trajectories", "show", "mine", made[0].episode).output)
    assert shown == client.trajectory("mine", made[0].episode).model_dump(mode="json")
    assert leyden("trajectories", "ls", "absent").exit_code == 2
    assert leyden("trajectory", "mine", made[0].episode).exit_code == 2, "this was another command's name once"


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_an_export_is_a_whole_file_and_overwrites_nothing(
    leyden, made: list[Trajectory], tmp_path: Path, format: str
) -> None:
    path = tmp_path / "out" / f"mine.{format}"
    assert leyden("trajectories", "export", "mine", str(path), "--format", format).exit_code == 0
    first = path.read_bytes()
    again = leyden("trajectories", "export", "mine", str(path), "--format", format, "--min-reward", "1")
    assert again.exit_code == 2 and "--force" in again.stderr and path.read_bytes() == first
    forced = leyden("trajectories", "export", "mine", str(path), "--format", format, "--min-reward", "1", "--force")
    assert forced.exit_code == 0 and 0 < len(path.read_bytes()) < len(first)
    refused = leyden("trajectories", "export", "mine", str(tmp_path / "none"), "--rewards", "absent")
    assert refused.exit_code == 2
    assert sorted(one.name for one in tmp_path.rglob("*") if one.is_file() and "store" not in str(one)) == [path.name]
    rows = len(path.read_bytes().splitlines()) if format == "jsonl" else pq.read_table(path).num_rows
    assert rows == (3 if format == "jsonl" else 6)


def test_a_dataset_is_a_folder_and_only_such_a_folder_is_replaced(
    leyden, made: list[Trajectory], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    command = ("trajectories", "export", "mine", str(path), "--format", "datasets")
    assert leyden(*command).exit_code == 0
    assert sorted(str(one.relative_to(path)) for one in path.rglob("*")) == [
        "README.md",
        "train",
        "train/part-00000.parquet",
    ]
    assert pq.read_table(path / "train/part-00000.parquet").num_rows == 12
    assert leyden(*command).exit_code == 2
    assert leyden(*command, "--purpose", "eval", "--force").exit_code == 0
    assert pq.read_table(path / "train/part-00000.parquet").num_rows == 0
    (path / "mine.txt").write_text("of the user")
    refused = leyden(*command, "--force")
    assert refused.exit_code == 2 and "no folder that was exported" in refused.stderr
    assert (path / "mine.txt").exists()


def test_an_export_that_breaks_off_leaves_nothing(
    leyden, made: list[Trajectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(run: str, trajectories: object, text_only: bool):
        yield b"the beginning\n"
        raise RuntimeError("the API ends here")

    monkeypatch.setitem(__import__("leyden_task_api.export").export.FORMATS, "jsonl", (breaks, "text/plain"))
    monkeypatch.setattr(
        "leyden_client.connection.LeydenClient", lambda url, token: LeydenClient(url, token, patience_s=1)
    )
    failed = leyden("trajectories", "export", "mine", str(tmp_path / "out.jsonl"))
    assert failed.exit_code == 1 and "does not answer" in failed.stderr
    assert not [one for one in tmp_path.iterdir() if "out" in one.name]


def test_a_regrade_is_a_new_version_and_what_cannot_be_scored_is_listed(
    leyden, made: list[Trajectory], tmp_path: Path, client: LeydenClient
) -> None:
    (tmp_path / "second_look.py").write_text(GRADER)
    done = leyden("regrade", "mine", "--grader", "second_look:grade")
    assert done.exit_code == 0, done.output
    assert "reward version 1: 3 episodes, mean 1.167" in done.output
    assert "there is no answer" in done.stderr and "was cut" in done.stderr
    version = client.rewards("mine", "1")
    assert [line.rewards["right"] for line in version.lines] == [1.0, 1.0, 0.0]
    assert set(version.failed) == {one.episode for one in made if one.episode.endswith(".1")}
    assert len(version.grader_sha256) == 64
    heads = json.loads(leyden("trajectories", "ls", "mine", "--rewards", "1", "--json").output)
    assert [head["reward"] for head in heads] == [1.5, None, 1.5, None, 0.5, None]
    assert [head["reward"] for head in json.loads(leyden("trajectories", "ls", "mine", "--json").output)] == [0, 1] * 3

    assert leyden("regrade", "mine", "--grader", "second_look:grade").exit_code == 0
    named = leyden("regrade", "mine", "--grader", "second_look:grade", "--name", "strict", "--json")
    assert json.loads(named.stdout)["version"] == "strict"
    assert [one.version for one in client.reward_versions("mine")] == ["1", "2", "strict"]
    (tmp_path / "second_look.py").write_text(GRADER.replace("0.5", "0.75"))
    taken = leyden("regrade", "mine", "--grader", "second_look:grade", "--name", "strict")
    assert taken.exit_code == 2 and "never change" in taken.stderr

    (tmp_path / "second_look.py").write_text("def grade(task, output):\n    raise ValueError('never')\n")
    nothing = leyden("regrade", "mine", "--grader", "second_look:grade")
    assert nothing.exit_code == 1 and "nothing was stored" in nothing.stderr
    assert leyden("regrade", "mine", "--grader", "second_look:absent").exit_code == 2
    assert len(client.reward_versions("mine")) == 3
