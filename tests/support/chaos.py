"""Chaos: every process of a deployment is killed at random times while tasks are uploaded; then all is counted."""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from leyden_agents.calculator.tasks import eval_tasks, train_tasks
from leyden_client.client import LeydenClient
from leyden_contracts import TERMINAL_STATES, Episode, RunSpec, TaskInput
from leyden_ledger import Ledger
from leyden_ledger.check import check_run
from leyden_standalone.deployment import Deployment
from leyden_standalone.supervisor import Supervisor
from leyden_storage import ObjectStore
from leyden_storage.trajectories import Detail, read_batch, stored_batches
from support.loop import small_spec, stored
from support.servers import wait_for

_PAUSE_S = (0.3, 3.0)
"""Between two kills, and between two uploads."""
_END_S = 240
"""How long the last episodes may take once the killing is over."""


@dataclass(frozen=True)
class Books:
    """What became of one run's episodes."""

    accepted: int
    """Episodes that the API said it had accepted."""
    ended: int
    lost: int
    """Accepted, and not ended."""
    doubled: int
    """Ended twice, stored twice, or there though nobody asked for them."""
    violations: list[str]
    run: str
    """The run's own state."""
    states: dict[str, int]
    attempts: int

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return self.run == "finished" and not (self.lost or self.doubled or self.violations)


def play_seed(
    deployment: Deployment, supervisor: Supervisor, client: LeydenClient, seed: int, seconds: float
) -> tuple[Books, dict[str, int]]:
    """Upload to a new run for `seconds` while everything is killed, let it end in peace, and count.

    Returns the books, and how often each part was killed.
    """
    dice = random.Random(seed)
    spec = small_spec(seed, max_staleness=1).model_copy(update={"id": f"chaos-{seed}-{os.getpid()}"})
    run = str(spec.id)
    with _killing(supervisor, random.Random(-seed), seconds) as kills:
        client.create_run(spec)
        accepted = _upload(client, spec, dice, seconds)
    client.seal(run)
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: client.run(run).summary.state == "finished" and _ended(client, run) >= accepted, _END_S, run)
    return asyncio.run(_close_books(deployment, run, accepted)), dict(sorted(kills.items()))


def _upload(client: LeydenClient, spec: RunSpec, dice: random.Random, seconds: float) -> int:
    """Upload a few tasks now and then; return how many episodes were accepted."""
    accepted, number, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        purpose = dice.choice(("train", "eval"))
        make = train_tasks if purpose == "train" else eval_tasks
        rows = make(dice.randint(1, 6), dice.randrange(2**31))
        tasks = [TaskInput.model_validate(row) for row in rows]
        accepted += client.upload_tasks(str(spec.id), tasks, purpose=purpose, key=f"upload-{number}").episodes
        number += 1
        time.sleep(dice.uniform(*_PAUSE_S))
    return accepted


def _ended(client: LeydenClient, run: str) -> int:
    counts = client.run(run).summary.counts
    return sum(count for name, count in counts.items() if name.partition(":")[2] in TERMINAL_STATES)


@contextmanager
def _killing(supervisor: Supervisor, dice: random.Random, seconds: float) -> Iterator[Counter[str]]:
    """Kill one process after the other for `seconds`, each of them before any a second time."""
    stop, kills, end = threading.Event(), Counter[str](), time.monotonic() + seconds

    def kill() -> None:
        names: list[str] = []
        # Not for longer, though an upload may wait: nobody can be served while all are killed again and again.
        while not stop.wait(dice.uniform(*_PAUSE_S)) and time.monotonic() < end:
            if not names:
                names = sorted(supervisor.pids)
                dice.shuffle(names)
            name = names.pop()
            with contextlib.suppress(ProcessLookupError):  # it is down from the last time
                os.kill(supervisor.pids[name], signal.SIGKILL)
                kills[name] += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield kills
    finally:
        stop.set()
        thread.join()


async def _close_books(deployment: Deployment, run: str, accepted: int) -> Books:
    ledger = Ledger.connect(deployment.redis_url)
    try:
        return await count_up(ledger, stored(deployment), run, accepted)
    finally:
        await ledger.aclose()


async def count_up(ledger: Ledger, store: ObjectStore, run: str, accepted: int) -> Books:
    """Compare what the ledger, its events and the object store hold of `run` with what was accepted."""
    episodes: list[Episode] = []
    while page := await ledger.episodes.list(run, start=len(episodes), count=1000):
        episodes += page
    heads = [head for batch in stored_batches(store, run) for head in read_batch(store, run, batch, Detail.HEADS)]
    results = Counter(head.episode for head in heads)
    ended = sum(episode.state in TERMINAL_STATES for episode in episodes)
    twice = [times - 1 for counted in (await _endings(ledger, run), results) for times in counted.values()]
    return Books(
        accepted=accepted,
        ended=ended,
        lost=max(0, accepted - ended),
        doubled=sum(twice) + max(0, len(episodes) - accepted),
        violations=[str(violation) for violation in await check_run(ledger, store, run)],
        run=str((await ledger.runs.summary(run)).state),
        states=dict(Counter(str(episode.state) for episode in episodes)),
        attempts=sum(episode.attempt for episode in episodes),
    )


async def _endings(ledger: Ledger, run: str) -> Counter[str]:
    """Return how often each episode ended, by the run's events."""
    ends, after = Counter[str](), "0"
    while events := await ledger.events.read(run, after, 10, 1000):
        after = events[-1][0]
        ends.update(
            fields["episode"]
            for _, fields in events
            if fields["kind"] == "episode" and fields["state"] in TERMINAL_STATES
        )
    return ends
