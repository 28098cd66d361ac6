"""The worker's connection to one warm parent: requests out, ended children in."""

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from leyden_worker import kernel

log = structlog.get_logger()
_LINE_BYTES = 2**20
_STOP_S = 8.0
_LATE_S = 15.0
"""How long after a child's deadline its parent may take to say so, before it is thought to hang itself."""


class ImportFailed(Exception):
    """The function could not be imported; the message says what to change."""


@dataclass(frozen=True)
class End:
    """How a child ended. `report` is what it reported, None if it did not live to."""

    how: str
    """As in `nursery.Ended`, or `lost`: the warm parent died, and the child with it."""
    code: int = 0
    printed: str = ""
    report: dict[str, Any] | None = None


class ParentLink:
    """One warm parent. `call` may run many times at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ends: dict[int, asyncio.Future[End]] = {}
        self._pids: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: list[str], environment: Mapping[str, str]) -> "ParentLink":
        """Start the process. `ready` says when it can be used. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--parent", str(os.getpid())),
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            # Out of the terminal's reach: on Ctrl-C the worker ends its parents itself, in order.
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Of the warm parent."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        return self._reading is not None and not self._reading.done()

    async def ready(self) -> int:
        """Wait until the function is imported; return how many threads that process has. Raises ImportFailed."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise ImportFailed(f"the process that imports it {ending}: see the worker's log")
        answer = json.loads(line)
        if "refused" in answer:
            raise ImportFailed(answer["refused"])
        self._reading = asyncio.create_task(self._read(self._process.stdout))
        return answer["threads"]

    async def call(self, arguments: list[Any], timeout_s: float, **more: Any) -> End:
        """Run the function in a child of its own and wait for its end. If cancelled, the child is killed first."""
        if not self.alive:
            return End("lost")
        number = next(self._numbers)
        end = self._ends[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "arguments": arguments, "timeout_s": timeout_s, **more})
            # wait(), not `await end`: a cancelled call must not cancel `end`, which still tells when the child is dead.
            if not (await asyncio.wait({end}, timeout=timeout_s + _LATE_S))[0]:
                self._process.kill()
            return await end
        except asyncio.CancelledError:
            await self._kill(number, end)
            raise
        finally:
            self._ends.pop(number, None)
            self._pids.pop(number, None)

    async def close(self) -> None:
        """End the process and its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S if self._reading else 0):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _kill(self, number: int, end: "asyncio.Future[End]") -> None:
        await self._send({"kill": number})
        if not (await asyncio.wait({end}, timeout=_STOP_S))[0]:
            self._process.kill()

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # then `_read` ends, and with it every call
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        try:
            while line := await stream.readline():
                answer = json.loads(line)
                if "pid" in answer:
                    self._pids[answer["id"]] = answer["pid"]
                    continue
                report = await stream.readexactly(answer["bytes"])
                end = self._ends.get(answer["id"])
                if end is not None and not end.done():
                    end.set_result(End(answer["how"], answer["code"], answer["printed"], _parsed(report)))
        except asyncio.IncompleteReadError:
            pass  # it died while it answered
        except ValueError:
            log.exception("warm_parent_answers_nonsense")
            self._process.kill()
        finally:
            self._lose_all()

    def _lose_all(self) -> None:
        for number, end in self._ends.items():
            # The kernel has killed the children with their parent, but not what they have started.
            if number in self._pids:
                kernel.kill_group(self._pids[number])
            if not end.done():
                end.set_result(End("lost"))


def _parsed(report: bytes) -> dict[str, Any] | None:
    try:
        return json.loads(report)
    except ValueError:
        return None
