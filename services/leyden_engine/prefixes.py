"""Prompts that begin alike are computed once: episodes of one task, and the turns of one episode.

A sequence's keys and values are kept for a while after it has ended. They belong to one adapter object, not to its
name, so nothing stale is ever reused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leyden_engine.job import Job
from leyden_engine.lora import Adapter
from leyden_engine.network import Network

_WORTH = 16
"""Tokens: sharing fewer costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Held:
    """A row of the cache, and what it holds."""

    row: int
    adapter: Adapter | None
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Start:
    """A new job, and how much of its prompt can be copied from where."""

    job: Job
    source: int = 0
    length: int = 0

    @property
    def rest(self) -> list[int]:
        """The prompt's tokens that are still to be run: one or more."""
        return self.job.prompt[self.length :]


class Prefixes:
    """Keeps ended sequences in the cache's rows from `first` on, the oldest giving way."""

    def __init__(self, network: Network, first: int, rows: int) -> None:
        self._network = network
        self._first = first
        self._rows = rows
        self._kept: dict[int, Held] = {}
        self._next = 0

    def keep(self, job: Job, row: int) -> None:
        """Remember the sequence in `row`, whose job has ended well."""
        if self._rows:
            target = self._first + self._next
            self._network.copy(row, target, job.cached)
            self._kept[target] = Held(target, job.adapter, job.prompt + job.tokens[:-1])
            self._next = (self._next + 1) % self._rows

    def waves(self, jobs: Sequence[Job], running: Sequence[Job]) -> tuple[list[Job], list[Job]]:
        """Part new jobs into those to start now, and those that can copy from one of them once it has started."""
        now: list[Job] = []
        later: list[Job] = []
        for job in jobs:
            leaders = [Held(0, leader.adapter, leader.prompt) for leader in now]
            ahead = _best(job, leaders).length
            worth = ahead >= _WORTH and ahead >= self.start(job, running).length + _WORTH
            (later if worth else now).append(job)
        return now, later

    def start(self, job: Job, running: Sequence[Job]) -> Start:
        """Find the row that shares most of the job's prompt; row n belongs to the n-th running job."""
        if job.prompt_logprobs is not None:
            return Start(job)
        held = [Held(row, one.adapter, one.prompt) for row, one in enumerate(running) if not one.error]
        found = _best(job, [*held, *self._kept.values()])
        return found if found.length >= _WORTH else Start(job)


def _best(job: Job, candidates: Iterable[Held]) -> Start:
    prompt, best = job.prompt, Start(job)
    # The last prompt token always runs: its logits are what is sampled from.
    limit = len(prompt) - 1
    for held in candidates:
        longer = best.length + 1
        if held.adapter is job.adapter and longer <= limit and held.tokens[:longer] == prompt[:longer]:
            best = Start(job, held.row, _common(held.tokens, prompt, limit))
    return best


def _common(a: list[int], b: list[int], limit: int) -> int:
    """Return how many tokens `a` and `b` share from the start, at most `limit`. Compares slices: they are fast."""
    low, high = 0, min(len(a), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
