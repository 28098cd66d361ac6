"""Keeps processes running until told to stop, and leaves none behind.

Each part is started, watched and restarted on its own; only the order of the first start and of the stop is fixed: in
stages, and what is in one stage starts at once.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

log = structlog.get_logger()
_PR_SET_PDEATHSIG = 1
_BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)
_CALM_S = 30.0
"""A part that ran this long before it ended starts again without a back-off."""


@dataclass(frozen=True)
class Part:
    """One process."""

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] = lambda: True
    """Whether it answers by now; the next stage is started after that."""
    start_timeout_s: float = 120.0
    stop_timeout_s: float = 15.0


class StartFailed(Exception):
    """A part did not come up; the message names its log."""


class Supervisor:
    """Runs parts, with their logs in `log_dir/NAME.log` and their pids in `pids`."""

    def __init__(self, stages: Sequence[Sequence[Part]], log_dir: Path) -> None:
        self._stages = stages
        self._log_dir = log_dir
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        log_dir.mkdir(parents=True, exist_ok=True)

    @property
    def pids(self) -> dict[str, int]:
        """Part name -> pid of its newest process."""
        return {name: process.pid for name, process in self._processes.items()}

    async def start(self) -> None:
        """Start each stage once the one before is ready. Raises StartFailed."""
        for stage in self._stages:
            await asyncio.gather(*map(self._start, stage))

    async def stop(self) -> None:
        """Stop the stages in reverse order."""
        self._stopping = True
        for stage in reversed(self._stages):
            await asyncio.gather(*map(self._stop, stage))

    async def _start(self, part: Part) -> None:
        started = time.monotonic()
        self._keepers[part.name] = asyncio.create_task(self._keep(part))
        while not await asyncio.to_thread(part.ready):
            if time.monotonic() - started > part.start_timeout_s or self._keepers[part.name].done():
                raise StartFailed(f"{part.name} did not start: see {self._log_path(part)}")
            await asyncio.sleep(0.1)

    async def _stop(self, part: Part) -> None:
        """SIGTERM, and SIGKILL if the part outlasts its time."""
        process, keeper = self._processes.get(part.name), self._keepers.get(part.name)
        if process and process.returncode is None:
            _signal(process, signal.SIGTERM)
        if keeper and not await _ended(keeper, part.stop_timeout_s) and process:
            log.warning("killed", part=part.name, after_s=part.stop_timeout_s)
            _signal(process, signal.SIGKILL)
            await keeper

    async def _keep(self, part: Part) -> None:
        failures = 0
        while not self._stopping:
            started = time.monotonic()
            code = await self._run_once(part)
            if self._stopping:
                return
            if code == 2:
                # By convention the settings are wrong: the same start would fail again.
                log.error("part_refused_its_settings", part=part.name, log=str(self._log_path(part)))
                return
            failures = 0 if time.monotonic() - started > _CALM_S else failures + 1
            log.warning("part_ended", part=part.name, code=code, restarts=failures)
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])

    async def _run_once(self, part: Part) -> int:
        with self._log_path(part).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *part.command,
                env={**os.environ, **part.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Its own session: Ctrl-C reaches only the supervisor, which stops the parts in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self._processes[part.name] = process
        if self._stopping:
            _signal(process, signal.SIGTERM)
        return await process.wait()

    def _log_path(self, part: Part) -> Path:
        return self._log_dir / f"{part.name}.log"


def _die_with_parent() -> None:
    """Have the kernel end this child when the supervisor is killed, so that kill -9 leaves nothing behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return


async def _ended(task: "asyncio.Task[None]", seconds: float) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)
