"""A deployment whose processes a test starts, arms with failpoints, kills and starts again by hand."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from leyden_agents.calculator.recipe import MODEL_DIR
from leyden_client.client import LeydenClient
from leyden_contracts import TERMINAL_STATES, Episode, EpisodeRules, RunSpec, TaskInput, new_run_id
from leyden_ledger import Ledger, ReplicaStatus
from leyden_standalone.deployment import Deployment, Options, open_deployment
from leyden_standalone.parts import make_stages
from support.loop import violations
from support.servers import find_port, wait_for
from support.worker import descendants

TESTS = Path(__file__).parents[1]
AGENTS = TESTS / "faults/agents"
BASE_MODEL = "free"
SERVICES = ("collector", "gateway", "task_api", "worker")
QUICK = {
    "LEYDEN_WORKER_LEASE_S": "2",
    "LEYDEN_TASK_API_RING_AGAIN_S": "1",
    "LEYDEN_TASK_API_RECONCILE_S": "0.2",
    "LEYDEN_TASK_API_TRACE_GRACE_S": "3",
    "LEYDEN_TASK_API_ANSWER_WITHIN_S": "2",
    "LEYDEN_COLLECTOR_ASSEMBLY_LEASE_S": "2",
}
"""Waits that are long for people's sake, made short."""
CALLS = [{"call": 2}]
"""The input of an ordinary task: see `faults/agents/scripted.py`."""


class Fleet:
    """Redis, task API, gateway, collector and workers, as processes; a model that costs nothing behind them."""

    def __init__(self, deployment: Deployment, folder: Path, settings: Mapping[str, str]) -> None:
        self.deployment = deployment
        self._settings = QUICK | settings
        self._folder = folder
        self._parts = {part.name: part for stage in make_stages(deployment) for part in stage}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._unlike: set[str] = set()
        """Parts that run with a failpoint or other settings."""
        self.client = LeydenClient(deployment.url("task_api"), deployment.token, patience_s=120)

    # Processes

    def start(self, name: str, failpoints: str = "", wait: bool = True, **settings: str) -> "subprocess.Popen[bytes]":
        """Start a part, with variables of its environment changed; a running one of that name is killed first."""
        self.kill(name)
        part = self._parts[name]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")}
        environment |= part.env | self._settings | settings
        if failpoints:
            environment["LEYDEN_FAILPOINTS"] = failpoints
        self._running[name] = self._spawn(name, part.command, environment)
        self._unlike.discard(name)
        if failpoints or settings:
            self._unlike.add(name)
        if wait:
            self.ready(name)
        return self._running[name]

    def ready(self, name: str) -> None:
        """Wait until a part answers."""
        wait_for(self._parts[name].ready, 60, name)

    def twin(self, name: str, service: str) -> str:
        """Add a second part of a service, on a port of its own; `start` it then by `name`."""
        port = str(find_port())
        part = self._parts[service]
        own = {f"LEYDEN_{service.upper()}_PORT": port, f"LEYDEN_{service.upper()}_NAME": name}
        if service != "worker":
            own.popitem()
        if service == "collector":
            own["LEYDEN_COLLECTOR_GRPC_PORT"] = "0"
        url = f"http://127.0.0.1:{port}/healthz"
        self._parts[name] = replace(part, name=name, env=part.env | own, ready=lambda: _answers(url))
        return name

    def pid(self, name: str) -> int:
        """Return the pid of a running part."""
        return self._running[name].pid

    def alive(self, name: str) -> bool:
        """Say whether a part runs."""
        return name in self._running and self._running[name].poll() is None

    def kill(self, name: str) -> None:
        """End a part with SIGKILL, if it runs."""
        process = self._running.get(name)
        if process and process.poll() is None:
            process.kill()
            process.wait()

    def lose_host(self, name: str) -> None:
        """Kill a part and everything below it at once, as when its machine loses power."""
        family = [self.pid(name), *descendants(self.pid(name))]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._running[name].wait()

    def ended(self, name: str, seconds: float = 30) -> int:
        """Wait for a part's end; return its exit code, minus the signal's number if it was killed."""
        return self._running[name].wait(seconds)

    @contextmanager
    def killed_at(self, points: Iterable[str]) -> Iterator[Callable[[], bool]]:
        """Start services so that they are killed at `points`, those of one service one after the other.

        Yields a function that says whether all of them have been. At the end of the block they must have been.
        """
        chains: dict[str, list[str]] = {}
        for point in points:
            chains.setdefault(point.partition(".")[0], []).append(f"{point}=kill")

        def follow(name: str) -> list[int]:
            codes = []
            for after in [*chains[name][1:], ""]:
                codes.append(self.ended(name, 90))
                # One that is armed may be dead again before it has been seen to answer.
                self.start(name, after, wait=not after)
            return codes

        for name, chain in chains.items():
            self.start(name, chain[0], wait=False)
        for name in chains:
            self.ready(name)
        with ThreadPoolExecutor() as pool:
            ends = {name: pool.submit(follow, name) for name in chains}
            yield lambda: all(end.done() for end in ends.values())
            for name, end in ends.items():
                assert end.result() == [-signal.SIGKILL] * len(chains[name]), name

    def mend(self) -> None:
        """Bring back what is down, unarmed, and stop what a test has added."""
        for name in [name for name in self._running if name not in self._base()]:
            self.kill(name)
            del self._running[name], self._parts[name]
        broken = [name for name in self._base() if name in self._unlike or not self.alive(name)]
        for name in broken:
            self.start(name, wait=name == "redis")
        for name in broken:
            self.ready(name)

    def close(self) -> None:
        """Stop everything."""
        for name in (*SERVICES[::-1], *self._running):
            if self.alive(name):
                self._running[name].terminate()
        for name, process in self._running.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            self.kill(name)
        self.client.close()

    # Runs

    def new_run(self, inputs: Sequence[Any], key: str | None = None, **rules: Any) -> str:
        """Create a run of the scripted agent and upload evaluation tasks; return its id."""
        run = self.create(**rules)
        self.upload(run, inputs, key)
        return run

    def create(self, **rules: Any) -> str:
        """Create a run of the scripted agent."""
        spec = RunSpec(
            id=new_run_id(),
            base_model=BASE_MODEL,
            agent="scripted:play",
            grader="scripted:content",
            episodes=EpisodeRules(**{"timeout_s": 60, "max_attempts": 8, **rules}),
        )
        return str(self.client.create_run(spec).spec.id)

    def upload(self, run: str, inputs: Sequence[Any], key: str | None = None) -> int:
        """Upload one evaluation task for each input; return how many episodes were accepted."""
        tasks = [TaskInput(input=steps, tags={"n": str(number)}) for number, steps in enumerate(inputs)]
        return self.client.upload_tasks(run, tasks, purpose="eval", policy_version=0, key=key).episodes

    def counts(self, run: str) -> Counter[str]:
        """Return state -> episodes."""
        counts: Counter[str] = Counter()
        for name, count in self.client.run(run).summary.counts.items():
            counts[name.partition(":")[2]] += count
        return +counts

    def outcome(self, run: str, episodes: int, seconds: float = 120) -> dict[str, int]:
        """Wait until all `episodes` have ended, and the checker finds nothing; return state -> episodes."""

        def over() -> bool:
            counts = self.counts(run)
            return sum(counts[state] for state in TERMINAL_STATES) == episodes

        wait_for(over, seconds, f"the end of {episodes} episodes of {run}")
        assert violations(self.deployment, run) == []
        return dict(self.counts(run))

    def episodes(self, run: str) -> list[Episode]:
        """Return all episodes."""
        return list(self.client.episodes(run))

    def _base(self) -> list[str]:
        return [name for name in ("redis", *SERVICES) if name in self._parts]

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


@contextmanager
def fleet_in(folder: Path, settings: Mapping[str, str] | None = None, **options: Any) -> Iterator[Fleet]:
    """Run a fleet, its own Redis (with AOF) included, for the length of the block.

    Args:
        folder: for its data and logs.
        settings: variables of every part's environment, over those of `QUICK`.
        options: of the deployment, over the usual ones.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    port = find_port()
    model = [sys.executable, str(TESTS / "bench/free_model.py"), str(port)]
    chosen = {"worker_concurrency": 16, "agent_path": AGENTS, **options}
    deployment = open_deployment(
        Options(folder / "data", MODEL_DIR, BASE_MODEL, replica_url=f"http://127.0.0.1:{port}", **chosen)
    )
    fleet = Fleet(deployment, folder, settings or {})
    replica = subprocess.Popen(model)
    try:
        if deployment.options.redis_url is None:
            fleet.start("redis")
        for name in SERVICES:
            fleet.start(name, wait=False)
        show_replica(deployment)
        for name in SERVICES:
            fleet.ready(name)
        yield fleet
    finally:
        fleet.close()
        replica.kill()
        replica.wait()


def show_replica(deployment: Deployment) -> None:
    """Enter the replica in the ledger for an hour: no loader runs here."""

    async def show() -> None:
        ledger = Ledger.connect(deployment.redis_url)
        replica = ReplicaStatus(id="replica-0", url=deployment.replica_url, base_model=BASE_MODEL)
        await ledger.replicas.beat(replica, 3600)
        await ledger.aclose()

    asyncio.run(show())


def lines(path: Path) -> list[list[str]]:
    """Return the words of each line that agents have written to `path`."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def until(ready: Any, seconds: float = 30, what: str = "it") -> float:
    """Wait for `ready()`; return the seconds that took."""
    started = time.monotonic()
    wait_for(ready, seconds, what)
    return time.monotonic() - started


def _answers(url: str) -> bool:
    from support.worker import answers

    return answers(url)
