"""A grader in a process of its own: its numbers come back, whatever else it does is an error and no reward."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leyden_agents.contract import AgentNotFound, GraderError
from leyden_agents.grading import GraderProcess
from support.servers import wait_for

SOURCE = """
import os, subprocess, sys, time


def grade(task, output):
    print("printed")
    if output == "raises":
        raise ValueError("no idea")
    if output == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open("child", "w").write(str(child.pid))
        time.sleep(600)
    if output == "dies":
        os._exit(3)
    if output == "nan":
        return float("nan")
    if output == "secrets":
        return len([name for name in os.environ if name.startswith("LEYDEN_")])
    if output == "reads":
        return len(sys.stdin.read())
    return {"right": float(output == task["expected"]), "short": 0.25}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_grader.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEYDEN_API_TOKEN", "secret")
    return tmp_path


@pytest.fixture
def process(folder: Path) -> Iterator[GraderProcess]:
    with GraderProcess("my_grader:grade", 60) as process:
        yield process


def grade(process: GraderProcess, output: str) -> float:
    return process.grade({"id": "t", "input": 1, "expected": "4", "tags": {}}, output).reward


def test_named_rewards_come_back_and_the_graders_file_is_known(process: GraderProcess) -> None:
    graded = process.grade({"expected": "4"}, "4")
    assert graded == (1.25, {"right": 1.0, "short": 0.25}, ())
    assert process.sha256 == hashlib.sha256(SOURCE.encode()).hexdigest()


def test_what_goes_wrong_is_said_and_the_next_output_is_graded(process: GraderProcess) -> None:
    for output, why in (("raises", "no idea"), ("nan", "finite"), ("dies", "exit code 3")):
        with pytest.raises(GraderError, match=why):
            grade(process, output)
        assert grade(process, "4") == 1.25


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_a_grader_that_hangs_is_killed_with_what_it_started(folder: Path) -> None:
    with GraderProcess("my_grader:grade", 5) as process:
        with pytest.raises(GraderError, match="longer than 5 s"):
            grade(process, "hangs")
        child = int((folder / "child").read_text())
        wait_for(lambda: ended(child), 30, "the end of what the grader started")
        assert grade(process, "4") == 1.25


def test_it_sees_no_secret_and_no_other_outputs(process: GraderProcess) -> None:
    assert "LEYDEN_API_TOKEN" in os.environ
    assert grade(process, "secrets") == 0
    assert grade(process, "reads") == 0
    assert grade(process, "4") == 1.25


def test_a_grader_that_is_not_there_is_named(folder: Path) -> None:
    for reference, why in (("my_grader:grad", "`grade`"), ("nowhere:grade", "nowhere")):
        with GraderProcess(reference, 60) as process, pytest.raises(AgentNotFound, match=why):
            process.start()
