"""Failpoints are refused when they are wrong, act when they should, and stand where their table says."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leyden_runtime import failpoints
from leyden_runtime.failpoints import POINTS, FailpointError, failpoint, parse

SOURCES = Path(failpoints.__file__).parents[2]


def test_a_list_of_failpoints_is_read() -> None:
    found = parse("task_api.stored=kill, worker.claimed=error@3,gateway.counted=sleep:0.25@2")
    assert [(point.name, point.kind, point.seconds, point.nth) for point in found.values()] == [
        ("task_api.stored", "kill", 0, None),
        ("worker.claimed", "error", 0, 3),
        ("gateway.counted", "sleep", 0.25, 2),
    ]
    assert parse("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task_api.stored", "not of the form"),
        ("task_api.stored=explode", "not of the form"),
        ("task_api.stored=kill@0", "not of the form"),
        ("task_api.stored=sleep", "not of the form"),
        ("task_api.stored=kill:3", "not of the form"),
        ("task_api.sotred=kill", "no failpoint 'task_api.sotred'; known ones: task_api.stored"),
        ("task_api.stored=kill,task_api.stored=error", "named twice"),
    ],
)
def test_what_is_wrong_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse(text)


def test_an_error_comes_the_nth_time_or_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", parse("worker.claimed=error@2,worker.closed=error"))
    failpoint("worker.claimed")
    for name in ("worker.claimed", "worker.closed", "worker.closed"):
        with pytest.raises(FailpointError, match=name):
            failpoint(name)
    failpoint("worker.claimed")
    failpoint("worker.starting")


def test_a_sleep_holds_the_process_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", parse("worker.claimed=sleep:0.1"))
    started = time.monotonic()
    failpoint("worker.claimed")
    assert time.monotonic() - started >= 0.1


def run(code: str, armed: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"LEYDEN_FAILPOINTS": armed}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_the_environment_arms_a_process() -> None:
    code = "from leyden_runtime.failpoints import failpoint as f; f('worker.closed'); print('on', flush=True); "
    ended = run(code + "f('worker.closed'); print('never')", "worker.closed=kill@2")
    assert (ended.returncode, ended.stdout) == (-9, "on\n")
    ended = run(code, "worker.close=kill")
    assert ended.returncode == 2
    assert ended.stderr.startswith("settings: LEYDEN_FAILPOINTS: there is no failpoint 'worker.close'")


def test_every_failpoint_stands_in_its_service_once() -> None:
    placed = [
        (name, path.relative_to(SOURCES).parts[1])
        for path in SOURCES.glob("services/*/**/*.py")
        for name in re.findall(r'failpoint\("([\w.]+)"\)', path.read_text())
    ]
    assert sorted(placed) == sorted((name, f"leyden_{name.partition('.')[0]}") for name in POINTS)
