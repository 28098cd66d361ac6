"""Whatever shares the batch, each job gets the tokens and logprobs that it would have got alone."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from leyden_engine.job import Job, Sampling
from leyden_engine.lora import Adapter
from leyden_engine.network import Network
from leyden_engine.scheduler import Busy, Cancelled, Scheduler
from leyden_engine.text import Text
from support.tiny_model import teacher_forced

Make = Callable[..., Scheduler]


def run(scheduler: Scheduler, jobs: Sequence[Job]) -> None:
    """Submit all jobs and wait for all of them."""
    left = threading.Semaphore(0)
    for job in jobs:
        job.done = left.release
        scheduler.submit(job)
    if not scheduler.alive:
        scheduler.start()
    for _ in jobs:
        assert left.acquire(timeout=30), "a job did not end"


def prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(3, 256) for _ in range(length)]


def check(job: Job, model: Path, adapter: Path | None) -> None:
    """Compare the job's logprobs with a teacher-forced pass of transformers and peft."""
    assert job.error is None and len(job.tokens) == len(job.logprobs) > 0
    logits = teacher_forced(model, adapter, job.prompt, job.tokens)
    wanted = (logits / (job.sampling.temperature or 1.0)).log_softmax(-1)
    wanted = wanted.gather(-1, torch.tensor(job.tokens)[:, None])[:, 0]
    assert torch.allclose(torch.tensor(job.logprobs), wanted, atol=1e-4)


def test_mixed_adapters_prompts_and_temperatures(
    make_scheduler: Make, model_folder: Path, adapters: dict[str, Adapter], adapter_folders: dict[str, Path]
) -> None:
    rng = random.Random(1)
    names = [None, "all", "some", "rs"]
    jobs = []
    for index in range(24):  # Four times as many as rows: rows are freed, moved and used again.
        name = names[index % 4]
        sampling = Sampling(temperature=rng.choice([0.0, 0.7, 1.0, 1.3]), max_tokens=rng.randint(1, 30), seed=index)
        jobs.append(Job(prompt(rng, rng.randint(1, 60)), adapters[name] if name else None, sampling))
    run(make_scheduler(), jobs)
    for index, job in enumerate(jobs):
        name = names[index % 4]
        check(job, model_folder, adapter_folders[name] if name else None)
        assert job.finish_reason == ("length" if len(job.tokens) == job.sampling.max_tokens else "stop")


def test_prompts_that_begin_alike_share_work_and_nothing_else(
    make_scheduler: Make,
    model_folder: Path,
    adapters: dict[str, Adapter],
    adapter_folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, rng = make_scheduler(), random.Random(2)
    copied: list[int] = []
    begin = scheduler._generation.begin

    def spy(starts: Sequence, first: int) -> None:
        copied.extend(start.length for start in starts)
        begin(starts, first)

    monkeypatch.setattr(scheduler._generation, "begin", spy)
    stem, names = prompt(rng, 40), ["all", "some", None]
    jobs = []
    for turn in range(12):
        name = names[turn % 3]
        ask = Sampling(max_tokens=5, seed=turn)
        jobs.append(Job(stem + prompt(rng, turn), adapters[name] if name else None, ask))
    run(scheduler, jobs)
    follow = [Job(job.prompt + job.tokens + prompt(rng, 3), job.adapter, Sampling(max_tokens=5)) for job in jobs[-3:]]
    run(scheduler, follow)
    for index, job in enumerate(jobs + follow):
        name = names[index % 3]
        check(job, model_folder, adapter_folders[name] if name else None)
    # The first of each policy computes the stem. Every later one copies it, and a next turn copies its last turn.
    assert copied[:3] == [0, 0, 0] and all(length >= 40 for length in copied[3:])
    assert sorted(copied[-3:]) == sorted(len(job.prompt) + 4 for job in jobs[-3:])


def test_a_seed_gives_the_same_tokens_in_any_company(make_scheduler: Make, adapters: dict[str, Adapter]) -> None:
    rng = random.Random(3)
    stem = prompt(rng, 20)

    def wanted() -> Job:
        return Job(stem, adapters["all"], Sampling(max_tokens=20, seed=7, stop_ids=frozenset()))

    alone, crowded = wanted(), wanted()
    run(make_scheduler(kept=0), [alone])
    others = [Job(prompt(rng, 30), adapters["rs"], Sampling(max_tokens=25)) for _ in range(5)]
    run(make_scheduler(kept=0), [*others, crowded])
    assert alone.tokens == crowded.tokens


def test_prompt_logprobs(
    make_scheduler: Make, model_folder: Path, adapters: dict[str, Adapter], adapter_folders: dict[str, Path]
) -> None:
    rng = random.Random(4)
    ids = prompt(rng, 30)
    scored = Job(ids, adapters["all"], Sampling(temperature=0.5, max_tokens=3, seed=1), prompt_logprobs=2)
    run(make_scheduler(), [Job(ids, adapters["all"], Sampling(max_tokens=20)), scored])
    check(scored, model_folder, adapter_folders["all"])
    plain = teacher_forced(model_folder, adapter_folders["all"], ids[:1], ids[1:]).log_softmax(-1)
    assert [token.id for token in scored.prompt_tokens] == ids[1:]
    for token, row in zip(scored.prompt_tokens, plain, strict=True):
        assert token.logprob == pytest.approx(row[token.id].item(), abs=1e-4)
        assert token.rank == int((row > row[token.id]).sum()) + 1
        assert [id for id, _ in token.top] == row.topk(2).indices.tolist()


def test_top_logprobs_are_of_the_sampled_distribution(make_scheduler: Make, model_folder: Path) -> None:
    job = Job([5, 6, 7], None, Sampling(temperature=0.7, max_tokens=4, top_logprobs=3, seed=1))
    run(make_scheduler(), [job])
    wanted = (teacher_forced(model_folder, None, job.prompt, job.tokens) / 0.7).log_softmax(-1).topk(3)
    assert [[id for id, _ in top] for top in job.tops] == wanted.indices.tolist()
    assert torch.allclose(torch.tensor([[p for _, p in top] for top in job.tops]), wanted.values, atol=1e-4)


def test_an_end_token_is_among_the_tokens(make_scheduler: Make, text: Text, model_folder: Path) -> None:
    rng = random.Random(5)
    jobs = [
        Job(prompt(rng, 10), None, Sampling(max_tokens=100, temperature=1.5, seed=n, stop_ids=text.end_ids))
        for n in range(30)
    ]
    run(make_scheduler(), jobs)
    ended = [job for job in jobs if job.finish_reason == "stop"]
    assert ended
    for job in ended:
        assert job.tokens[-1] in text.end_ids and not set(job.tokens[:-1]) & text.end_ids
        assert job.stop_reason is None
        check(job, model_folder, None)


def test_stop_strings_keep_every_token(make_scheduler: Make, text: Text) -> None:
    free = Job([5, 6, 7], None, Sampling(max_tokens=12, temperature=0.0))
    run(make_scheduler(), [free])
    stop = text.decode(free.tokens)[5:7]
    job = Job([5, 6, 7], None, Sampling(max_tokens=12, temperature=0.0, stop=("no such text", stop)))
    run(make_scheduler(), [job])
    assert (job.finish_reason, job.stop_reason) == ("stop", stop)
    assert job.tokens == free.tokens[: len(job.tokens)] and len(job.tokens) < 12
    assert stop in text.decode(job.tokens) and stop not in text.decode(job.tokens[:-1])


def test_a_full_queue_refuses(make_scheduler: Make) -> None:
    scheduler = make_scheduler(waiting=1)
    scheduler.submit(Job([5], None, Sampling()))
    with pytest.raises(Busy):
        scheduler.submit(Job([5], None, Sampling()))


def test_a_cancelled_job_gives_its_place_up(make_scheduler: Make) -> None:
    scheduler = make_scheduler(rows=1)
    running = Job([5, 6], None, Sampling(max_tokens=200))
    waiting = Job([5, 6], None, Sampling(max_tokens=200), cancelled=True)
    last = Job([5, 6], None, Sampling(max_tokens=2))
    threading.Timer(0.1, lambda: setattr(running, "cancelled", True)).start()
    run(scheduler, [running, waiting, last])
    assert isinstance(running.error, Cancelled) and 0 < len(running.tokens) < 200
    assert isinstance(waiting.error, Cancelled) and not waiting.tokens
    assert last.error is None and len(last.tokens) == 2


def test_a_broken_adapter_harms_nobody_else(
    make_scheduler: Make, model_folder: Path, adapters: dict[str, Adapter], adapter_folders: dict[str, Path]
) -> None:
    rng = random.Random(6)
    huge = {name: (down * 1e30, up * 1e30) for name, (down, up) in adapters["all"].weights.items()}
    broken = Adapter("broken", "", huge)
    names = [None, "some", "rs"]

    def good(lengths: Sequence[int], limit: int) -> list[Job]:
        return [
            Job(prompt(rng, length), adapters.get(names[n % 3] or ""), Sampling(max_tokens=limit))
            for n, length in enumerate(lengths)
        ]

    # Rows go by length: the broken jobs have rows 2 to 4. Later, short prompts get rows 3 and 4, beside longer ones.
    first, long, short = good([10, 30, 50], 12), good([60, 60, 60], 150), good([5, 8], 12)
    bad = [Job(prompt(rng, 40), broken, Sampling(max_tokens=12)) for _ in range(3)]
    run(make_scheduler(kept=0), [*bad, *first])
    scheduler, ended = make_scheduler(kept=0), threading.Semaphore(0)
    for job in long:
        job.done = ended.release
        scheduler.submit(job)
    scheduler.start()
    while not long[0].tokens:
        time.sleep(0.001)
    run(scheduler, short)
    assert all(ended.acquire(timeout=30) for _ in long)
    assert all(isinstance(job.error, ArithmeticError) for job in bad)
    for jobs in (first, long, short):
        for n, job in enumerate(jobs):
            check(job, model_folder, adapter_folders.get(names[n % 3] or ""))


def test_a_failed_pass_ends_its_own_jobs_only(
    make_scheduler: Make, network: Network, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, run_once = make_scheduler(), network.run

    def failing(tokens: Sequence[list[int]], *rest: object) -> torch.Tensor:
        if [9, 9, 9] in tokens:
            raise MemoryError("no room")
        return run_once(tokens, *rest)

    monkeypatch.setattr(network, "run", failing)
    bad, good = Job([9, 9, 9], None, Sampling(max_tokens=3)), Job([5, 6], None, Sampling(max_tokens=200))
    other = Job([7, 8], None, Sampling(max_tokens=2))
    ended = threading.Event()
    good.done = ended.set
    scheduler.submit(good)
    run(scheduler, [other])  # `good` is in its midst now.
    run(scheduler, [bad])
    assert ended.wait(30)
    assert isinstance(bad.error, MemoryError)
    check(good, model_folder, None)


def test_nothing_is_copied_from_a_prompt_that_failed(
    make_scheduler: Make, network: Network, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, run_once = random.Random(7), network.run
    stem = prompt(rng, 40)
    jobs = [Job(stem + prompt(rng, 3), None, Sampling(max_tokens=8)) for _ in range(3)]

    def failing(tokens: Sequence[list[int]], *rest: object) -> torch.Tensor:
        if jobs[0].prompt in tokens:
            raise MemoryError("no room")
        return run_once(tokens, *rest)

    monkeypatch.setattr(network, "run", failing)
    run(make_scheduler(), jobs)
    assert isinstance(jobs[0].error, MemoryError)
    for job in jobs[1:]:
        check(job, model_folder, None)


def test_stopping_fails_what_is_left(make_scheduler: Make) -> None:
    scheduler = make_scheduler(rows=1)
    jobs = [Job([5, 6], None, Sampling(max_tokens=240)) for _ in range(20)]
    for job in jobs:
        scheduler.submit(job)
    scheduler.start()
    scheduler.stop()
    assert not scheduler.alive
    assert all(job.error or job.finish_reason for job in jobs) and isinstance(jobs[-1].error, Cancelled)
