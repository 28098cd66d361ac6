"""The supervisor: starts in stages, restarts what dies, leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from leyden_standalone.deployment import InUse, Options, lock, open_deployment
from leyden_standalone.supervisor import Part, StartFailed, Supervisor

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)",
]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_what_dies_is_started_again_and_stop_ends_all(tmp_path: Path) -> None:
    supervisor = Supervisor([[Part("one", SLEEPER)], [Part("two", SLEEPER)]], tmp_path)
    await supervisor.start()
    await until(lambda: len(supervisor.pids) == 2)
    first = supervisor.pids["one"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pids["one"] != first)
    pids = list(supervisor.pids.values())
    await supervisor.stop()
    assert not any(map(alive, pids))


async def test_what_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    supervisor = Supervisor([[Part("one", STUBBORN, stop_timeout_s=0.3)]], tmp_path)
    await supervisor.start()
    await until(lambda: (tmp_path / "one.log").exists() and "on" in (tmp_path / "one.log").read_text())
    pid = supervisor.pids["one"]
    await supervisor.stop()
    assert not alive(pid)


async def test_refused_settings_are_not_tried_again(tmp_path: Path) -> None:
    refuses = Part("one", [sys.executable, "-c", "raise SystemExit(2)"], ready=lambda: False)
    supervisor = Supervisor([[refuses]], tmp_path)
    with pytest.raises(StartFailed, match=r"one\.log"):
        await supervisor.start()
    await supervisor.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from leyden_standalone.supervisor import Part, Supervisor
        async def main():
            part = Part("one", [sys.executable, "-c", "import time; time.sleep(60)"])
            supervisor = Supervisor([[part]], Path(sys.argv[1]))
            await supervisor.start()
            while "one" not in supervisor.pids:
                await asyncio.sleep(0.02)
            print(supervisor.pids["one"], flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 5
    while alive(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(child)


def test_the_folder_has_one_user_and_keeps_its_keys(tmp_path: Path) -> None:
    options = Options(data_dir=tmp_path, model=tmp_path, model_name="m")
    with lock(tmp_path):
        first = open_deployment(options)
        with pytest.raises(InUse, match="data-dir"):
            lock(tmp_path)
    again = open_deployment(options)
    assert (again.signing_key, again.ports) == (first.signing_key, first.ports)
    assert (tmp_path / "deployment.json").stat().st_mode & 0o077 == 0
