"""The worker's side of the warm parents: one for each run's agent and grader, kept while they are used."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from leyden_worker.environment import ATTEMPT_VARIABLES, Environments
from leyden_worker.parent_link import ImportFailed, ParentLink

log = structlog.get_logger()
_REFUSAL_S = 5.0
"""A module that cannot be imported is tried again after this long: its author may have repaired it."""

Key = tuple[str, str, str]
"""Run, kind, reference. By run, because a run's code is what its first episode found; the next run looks again."""


@dataclass
class _Slot:
    starting: "asyncio.Task[ParentLink]"
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> bool:
        return self.starting.done() and (self.starting.cancelled() or self.starting.exception() is not None)

    @property
    def usable(self) -> bool:
        if not self.starting.done():
            return True
        if self.failed:
            return time.monotonic() - self.last_used < _REFUSAL_S
        return self.starting.result().alive


class WarmPool:
    """Starts warm parents as they are needed, at most `size` of them idle."""

    def __init__(self, environments: Environments, path: list[Path], import_timeout_s: float, size: int) -> None:
        self._environments = environments
        self._path = path
        self._import_timeout_s = import_timeout_s
        self._size = size
        self._slots: dict[Key, _Slot] = {}
        self._links: list[ParentLink] = []

    @property
    def pids(self) -> set[int]:
        """The warm parents that run."""
        return {link.pid for link in self._links if link.running}

    @contextlib.asynccontextmanager
    async def borrow(self, run: str, kind: str, reference: str) -> AsyncIterator[ParentLink]:
        """Yield the warm parent of `reference`, ready. Raises ImportFailed, OSError."""
        key = (run, kind, reference)
        slot = self._slots.get(key)
        if slot is None or not slot.usable:
            slot = self._slots[key] = _Slot(asyncio.create_task(self._start(kind, reference)))
        slot.users += 1
        try:
            # Shielded: others wait for the same parent.
            yield await asyncio.shield(slot.starting)
        finally:
            slot.users -= 1
            if not slot.failed:
                slot.last_used = time.monotonic()
            await self._evict()

    async def close(self) -> None:
        """End all of them, and whatever runs in them."""
        slots, self._slots = list(self._slots.values()), {}
        await asyncio.gather(*(_end(slot) for slot in slots))

    async def _evict(self) -> None:
        idle = sorted((slot.last_used, key) for key, slot in self._slots.items() if not slot.users)
        # All taken out before any is ended: ending takes time, in which the next could be borrowed.
        surplus = [self._slots.pop(key) for _, key in idle[: max(0, len(idle) - self._size)]]
        for slot in surplus:
            await _end(slot)

    async def _start(self, kind: str, reference: str) -> ParentLink:
        environment = self._environments.grader() if kind == "grader" else self._environments.agent_import()
        command = [sys.executable, "-P", "-m", "leyden_worker.warm_parent", kind, reference]
        command += [part for folder in self._path for part in ("--path", str(folder))]
        command += [part for name in sorted(ATTEMPT_VARIABLES) for part in ("--watch", name)]
        link = await ParentLink.start(command, environment)
        self._links = [other for other in self._links if other.running] + [link]
        try:
            async with asyncio.timeout(self._import_timeout_s):
                threads = await link.ready()
        except TimeoutError:
            await link.close()
            raise ImportFailed(
                f"importing `{reference.partition(':')[0]}` took more than {self._import_timeout_s:g} s: keep what it "
                "runs out of its top level (`if __name__ == '__main__':`)"
            ) from None
        except BaseException:
            await link.close()
            raise
        if threads > 1:
            log.warning("import_started_threads", reference=reference, threads=threads - 1)
        return link


async def _end(slot: _Slot) -> None:
    if not slot.starting.done():
        slot.starting.cancel()
    with contextlib.suppress(asyncio.CancelledError, ImportFailed, OSError):
        await (await slot.starting).close()
