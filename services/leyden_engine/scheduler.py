"""The model thread: continuous batching, one token of every running job a step.

`_turn` is the whole story: take new jobs into free rows, run their prompts, then one step for all. A job leaves as
soon as it has ended; its row goes to the next.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import structlog
import torch

from leyden_engine import metrics
from leyden_engine.generation import Generation
from leyden_engine.job import Job
from leyden_engine.network import Network
from leyden_engine.prefixes import Prefixes, Start
from leyden_engine.text import Text

log = structlog.get_logger()
_PASS_TOKENS = 8192
"""Upper bound of prompt tokens in one forward pass, padding included; a longer prompt goes alone."""


class Busy(Exception):
    """Too many jobs wait already."""


class Cancelled(Exception):
    """The job was given up before it ended."""


class Scheduler:
    """Runs jobs on a thread of its own.

    Args:
        network: with a cache of `rows + kept` rows.
        text: of the same model.
        rows: jobs that run at the same time.
        kept: ended sequences whose keys and values are kept for prompts that begin alike.
        waiting: jobs that may wait for a row.
    """

    def __init__(self, network: Network, text: Text, rows: int, kept: int, waiting: int) -> None:
        self._network = network
        self._generation = Generation(network, text)
        self._prefixes = Prefixes(network, rows, kept)
        self._rows = rows
        self._waiting: queue.Queue[Job | None] = queue.Queue(waiting)
        self._running: list[Job] = []
        """Row n of the cache belongs to job n."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step in progress; jobs that have not ended fail with Cancelled."""
        self._stopping = True
        with suppress(queue.Full):  # Full: then the thread is awake, and looks at the flag.
            self._waiting.put_nowait(None)
        self._thread.join()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether jobs are being run."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Queue a job; `job.done` is called when it has ended. Raises Busy."""
        try:
            self._waiting.put_nowait(job)
        except queue.Full:
            raise Busy from None

    def _run(self) -> None:
        with torch.inference_mode():
            while not self._stopping:
                self._turn()
        self._abandon()

    def _turn(self) -> None:
        """Take new jobs in and run their prompts, then one step of all that run."""
        for jobs in self._prefixes.waves(self._take(), self._running):
            for starts in _passes([self._prefixes.start(job, self._running) for job in jobs]):
                self._begin(starts)
        self._retire()
        if self._running:
            self._guarded(self._running, partial(self._generation.step, self._running))
            self._retire()
        metrics.RUNNING.set(len(self._running))
        metrics.WAITING.set(self._waiting.qsize())

    def _take(self) -> list[Job]:
        """Return the waiting jobs that have a free row; with nothing to do at all, wait for the first."""
        jobs: list[Job] = []
        while len(jobs) + len(self._running) < self._rows:
            try:
                job = self._waiting.get(block=not jobs and not self._running)
            except queue.Empty:
                break
            if job is None:
                break
            if job.cancelled:
                _fail(job)
            else:
                jobs.append(job)
        return jobs

    def _begin(self, starts: list[Start]) -> None:
        first, jobs = len(self._running), [start.job for start in starts]
        self._running = self._running + jobs
        if jobs[0].prompt_logprobs is None:
            self._guarded(jobs, partial(self._generation.begin, starts, first))
        else:
            self._guarded(jobs, partial(self._generation.score, jobs[0], first))

    def _guarded(self, jobs: Sequence[Job], work: Callable[[], None]) -> None:
        """Do `work`; what it raises ends these jobs and no other."""
        try:
            work()
        except Exception as error:
            log.exception("pass_failed", jobs=len(jobs))
            for job in jobs:
                job.error = error

    def _retire(self) -> None:
        """Let go of every job that has ended, moving the last row into each hole."""
        for row, job in enumerate(self._running):
            if job.cancelled and not job.finish_reason:
                job.error = job.error or Cancelled()
            # Before any row moves: what is wiped is then where the job ran, and what moves is clean.
            if job.error:
                self._network.wipe(row)
        row = 0
        while row < len(self._running):
            job = self._running[row]
            if not (job.finish_reason or job.error):
                row += 1
                continue
            if not job.error:
                self._prefixes.keep(job, row)
            last = self._running.pop()
            if last is not job:
                self._network.copy(len(self._running), row, last.cached)
                self._running[row] = last
            job.done()

    def _abandon(self) -> None:
        """Fail what is left when the thread ends."""
        waiting = []
        while not self._waiting.empty():
            waiting.append(self._waiting.get())
        for job in [*self._running, *waiting]:
            if job is not None:
                _fail(job)


def _fail(job: Job) -> None:
    job.error = Cancelled()
    job.done()


def _passes(starts: list[Start]) -> Iterator[list[Start]]:
    """Cut new jobs into forward passes, each of prompts with a similar rest; scored prompts go alone."""
    batch: list[Start] = []
    for start in sorted(starts, key=lambda start: len(start.rest)):
        if start.job.prompt_logprobs is not None:
            yield [start]
            continue
        if batch and (len(batch) + 1) * len(start.rest) > _PASS_TOKENS:
            yield batch
            batch = []
        batch.append(start)
    if batch:
        yield batch
