"""Runs for a worker to work on: tasks in the store, episodes in the ledger."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leyden_contracts import EpisodeRules, RunSpec, Task, TaskInput, episode_id
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from leyden_storage.keys import task_part_key
from support.episodes import Planned, accept
from support.servers import process, wait_for

AGENTS = Path(__file__).parents[1] / "unit/worker/agents"
RUN = "run-w"


async def enter(
    ledger: Ledger, store: LocalStore, agent: str, inputs: list[Any], run: str = RUN, grader: str = "one", **rules: Any
) -> list[str]:
    """Create a run of `odd_agents:agent`, release one evaluation episode for each input; return the episodes."""
    spec = RunSpec(
        id=run,
        base_model="tiny",
        agent=agent if ":" in agent else f"odd_agents:{agent}",
        grader=grader if ":" in grader else f"odd_agents:{grader}",
        episodes=EpisodeRules(**{"timeout_s": 20, "max_attempts": 1, **rules}),
    )
    await ledger.runs.create(spec)
    lines = [Task.of(TaskInput(input=value, expected=value)).model_dump_json().encode() for value in inputs]
    folder, offset, groups = "0" * 24, 0, []
    store.put(task_part_key(run, folder, 0), b"\n".join(lines) + b"\n")
    for number, line in enumerate(lines):
        task = Task.model_validate_json(line).id
        groups.append(Planned(f"{task}-{number}", task, f"{folder}/0#{offset}+{len(line)}", "eval", 1))
        offset += len(line) + 1
    await accept(ledger, run, groups)
    await ledger.episodes.release(run)
    return [episode_id(group.id, 0) for group in groups]


def answers(url: str) -> bool:
    """Say whether `url` answers with 200."""
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return response.status == 200
    except OSError:
        return False


@contextmanager
def worker_process(redis_url: str, folder: Path, signing_key: str, port: int, **settings: str) -> Iterator["Any"]:
    """Run `python -m leyden_worker` on the store in `folder`/store; yields the process once it is healthy."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LEYDEN_")},
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{folder}/store",
        "LEYDEN_SIGNING_KEY": signing_key,
        "LEYDEN_WORKER_PORT": str(port),
        "LEYDEN_WORKER_AGENT_PATH": f"{AGENTS}{os.pathsep}{folder}",
        **{f"LEYDEN_WORKER_{name}": value for name, value in settings.items()},
    }
    with process([sys.executable, "-m", "leyden_worker"], folder / "worker.log", env=environment) as worker:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/healthz"), 30, "the worker")
        yield worker


def running(pids: list[int]) -> list[int]:
    """Return those of `pids` that are processes, zombies included."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def alive(pids: list[int]) -> list[int]:
    """Return those of `pids` that still run: not the dead whom nobody has waited for."""
    states = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in running(pids)}
    return [pid for pid, state in states.items() if state != "Z"]


def noted(path: Path) -> list[int]:
    """Return the pids that agents wrote into `path`."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def descendants(pid: int) -> set[int]:
    """Return the pids of all processes below `pid`."""
    found: set[int] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found |= {child} | descendants(child)
    return found
