"""The model thread: continuous batching, one token of every running job a step.

`_turn` is the whole story: take new jobs into free rows, run their prompts, then one step for all. A job
leaves as soon as it has ended; its row goes to the next.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import structlog
import torch
from torch import Tensor

from leyden_engine import metrics
from leyden_engine.job import Job, PromptToken, Top
from leyden_engine.network import Network
from leyden_engine.sampling import UNIFORM_BITS, choose
from leyden_engine.text import Text

log = structlog.get_logger()
_PREFILL_TOKENS = 8192
"""Upper bound of prompt tokens in one forward pass, padding included; a longer prompt goes alone."""


class Busy(Exception):
    """Too many jobs wait already."""


class Cancelled(Exception):
    """The job was given up before it ended."""


class Scheduler:
    """Runs jobs on a thread of its own."""

    def __init__(self, network: Network, text: Text, rows: int, waiting: int) -> None:
        self._network = network
        self._text = text
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
        """Take new jobs in, run their prompts, then one step of all that run."""
        for jobs in _chunks(self._take()):
            self._guarded(self._prefill, jobs)
        self._retire()
        if self._running:
            self._guarded(self._step, self._running)
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
                _fail(job, Cancelled())
            else:
                jobs.append(job)
        return jobs

    def _guarded(self, work: Callable[[list[Job]], None], jobs: list[Job]) -> None:
        """Do `work` on `jobs`; what it raises ends these jobs and no other."""
        try:
            work(jobs)
        except Exception as error:
            log.exception("step_failed", jobs=len(jobs))
            for job in jobs:
                job.error = error

    def _prefill(self, jobs: list[Job]) -> None:
        """Run the jobs' prompts into the rows after the running ones, and choose their first tokens."""
        first = len(self._running)
        self._running = self._running + jobs
        metrics.PROMPT_TOKENS.inc(sum(len(job.prompt) for job in jobs))
        top = jobs[0].prompt_logprobs
        if top is None:
            logits = self._network.prefill([job.prompt for job in jobs], [job.adapter for job in jobs], first)
        else:
            (job,) = jobs
            scores = self._network.score(job.prompt, job.adapter, first)
            job.prompt_tokens = _prompt_tokens(scores, job.prompt, top)
            logits = scores[-1:]
        self._extend(jobs, logits)

    def _step(self, jobs: list[Job]) -> None:
        """Choose one more token for each of `jobs`, which are all that run."""
        tokens = [job.tokens[-1] for job in jobs]
        logits = self._network.step(tokens, [job.cached for job in jobs], [job.adapter for job in jobs])
        self._extend(jobs, logits)

    def _extend(self, jobs: list[Job], logits: Tensor) -> None:
        ask = [job.sampling for job in jobs]
        device = logits.device
        broken = ~logits.isfinite().all(-1)
        nucleus = any(sampling.top_p < 1 for sampling in ask)
        tokens, logprobs, all_logprobs = choose(
            logits.masked_fill(broken[:, None], 0.0),
            torch.tensor([sampling.temperature for sampling in ask], device=device),
            torch.tensor([sampling.top_p for sampling in ask], device=device) if nucleus else None,
            torch.tensor([job.random.getrandbits(UNIFORM_BITS) * 2.0**-UNIFORM_BITS for job in jobs]).to(device),
        )
        metrics.GENERATED_TOKENS.inc(len(jobs))
        for row, (job, token, logprob) in enumerate(zip(jobs, tokens.tolist(), logprobs.tolist(), strict=True)):
            job.tokens.append(token)
            job.logprobs.append(logprob)
            if job.sampling.top_logprobs:
                job.tops.append(_top(all_logprobs[row], job.sampling.top_logprobs))
            self._check_end(job, token)
        for row in broken.nonzero()[:, 0].tolist():
            jobs[row].error = ArithmeticError("the model's logits are not finite")

    def _check_end(self, job: Job, token: int) -> None:
        sampling = job.sampling
        if token in sampling.stop_ids:
            job.finish_reason = "stop"
            job.stop_reason = None if token in self._text.end_ids else token
        elif sampling.stop and (found := self._text.find_stop(job.tokens, sampling.stop, job.keep_special)):
            job.finish_reason, job.stop_reason = "stop", found
        elif len(job.tokens) >= sampling.max_tokens:
            job.finish_reason = "length"

    def _retire(self) -> None:
        """Let go of every job that has ended, moving the last row into each hole."""
        row = 0
        while row < len(self._running):
            job = self._running[row]
            if job.cancelled and not job.finish_reason:
                job.error = job.error or Cancelled()
            if not (job.finish_reason or job.error):
                row += 1
                continue
            if job.error:
                self._network.wipe(row)
            last = self._running.pop()
            if last is not job:
                if not last.error:
                    self._network.move(len(self._running), row, last.cached)
                self._running[row] = last
            job.done()

    def _abandon(self) -> None:
        """Fail what is left when the thread ends."""
        waiting = []
        while not self._waiting.empty():
            waiting.append(self._waiting.get())
        for job in [*self._running, *waiting]:
            if job is not None:
                _fail(job, Cancelled())


def _fail(job: Job, error: Exception) -> None:
    job.error = error
    job.done()


def _chunks(jobs: list[Job]) -> Iterator[list[Job]]:
    """Cut jobs into batches for one forward pass each, of prompts of similar length; scored prompts go alone."""
    chunk: list[Job] = []
    for job in sorted(jobs, key=lambda job: len(job.prompt)):
        if job.prompt_logprobs is not None:
            yield [job]
            continue
        if chunk and (len(chunk) + 1) * len(job.prompt) > _PREFILL_TOKENS:
            yield chunk
            chunk = []
        chunk.append(job)
    if chunk:
        yield chunk


def _top(logprobs: Tensor, count: int) -> Top:
    values, ids = logprobs.topk(min(count, len(logprobs)))
    return list(zip(ids.tolist(), values.tolist(), strict=True))


def _prompt_tokens(logits: Tensor, prompt: list[int], top: int) -> list[PromptToken]:
    """Return what logits of shape [T, V] say of tokens 2..T of the prompt."""
    logprobs = logits[:-1].log_softmax(-1)
    ids = torch.tensor(prompt[1:], device=logits.device)
    own = logprobs.gather(-1, ids[:, None])
    ranks = (logprobs > own).sum(-1) + 1
    tops = [_top(row, top) if top else [] for row in logprobs]
    found = zip(prompt[1:], own[:, 0].tolist(), ranks.tolist(), tops, strict=True)
    return [PromptToken(id, logprob, rank, top) for id, logprob, rank, top in found]
