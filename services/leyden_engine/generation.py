"""One forward pass and what follows from it for each job: the token, its logprob, and whether the job has ended."""

from collections.abc import Sequence

import torch
from torch import Tensor

from leyden_engine import metrics
from leyden_engine.job import Job, PromptToken, Top
from leyden_engine.network import Network
from leyden_engine.prefixes import Start
from leyden_engine.sampling import UNIFORM_BITS, choose
from leyden_engine.text import Text


class Generation:
    """Runs jobs through the network. Row n of its cache belongs to the n-th running job."""

    def __init__(self, network: Network, text: Text) -> None:
        self._network = network
        self._text = text

    def begin(self, starts: Sequence[Start], first: int) -> None:
        """Run the prompts of new jobs in the rows from `first` on, and choose the first token of each."""
        jobs = [start.job for start in starts]
        metrics.PROMPT_TOKENS.inc(sum(len(job.prompt) for job in jobs))
        metrics.REUSED_TOKENS.inc(sum(start.length for start in starts))
        for row, start in enumerate(starts, first):
            if start.length:
                self._network.copy(start.source, row, start.length)
        lengths, adapters = [start.length for start in starts], [job.adapter for job in jobs]
        self._extend(jobs, self._network.run([start.rest for start in starts], lengths, adapters, first))

    def score(self, job: Job, row: int) -> None:
        """Like `begin`, for one job that also wants logprobs of its prompt."""
        metrics.PROMPT_TOKENS.inc(len(job.prompt))
        logits = self._network.score(job.prompt, job.adapter, row)
        job.prompt_tokens = _prompt_tokens(logits, job.prompt, job.prompt_logprobs or 0)
        self._extend([job], logits[-1:])

    def step(self, jobs: Sequence[Job]) -> None:
        """Choose one more token for each of `jobs`, which are all that run."""
        last = [job.tokens[-1:] for job in jobs]
        self._extend(jobs, self._network.run(last, [job.cached for job in jobs], [job.adapter for job in jobs], 0))

    def _extend(self, jobs: Sequence[Job], logits: Tensor) -> None:
        ask = [job.sampling for job in jobs]
        device = logits.device
        broken = ~logits.isfinite().all(-1)
        uniforms = [job.random.getrandbits(UNIFORM_BITS) * 2.0**-UNIFORM_BITS for job in jobs]
        nucleus = any(sampling.top_p < 1 for sampling in ask)
        tokens, logprobs, all_logprobs = choose(
            logits.masked_fill(broken[:, None], 0.0),
            torch.tensor([sampling.temperature for sampling in ask], device=device),
            torch.tensor([sampling.top_p for sampling in ask], device=device) if nucleus else None,
            torch.tensor(uniforms, device=device, dtype=torch.float64),
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


def _top(logprobs: Tensor, count: int) -> Top:
    values, ids = logprobs.topk(min(count, len(logprobs)))
    return list(zip(ids.tolist(), values.tolist(), strict=True))


def _prompt_tokens(logits: Tensor, prompt: list[int], top: int) -> list[PromptToken]:
    """Return what logits of shape [T, V] say of tokens 2..T of the prompt."""
    logprobs = logits[:-1].log_softmax(-1)
    own = logprobs.gather(-1, torch.tensor(prompt[1:], device=logits.device)[:, None])
    ranks = (logprobs > own).sum(-1) + 1
    tops = [_top(row, top) if top else [] for row in logprobs]
    found = zip(prompt[1:], own[:, 0].tolist(), ranks.tolist(), tops, strict=True)
    return [PromptToken(id, logprob, rank, top) for id, logprob, rank, top in found]
