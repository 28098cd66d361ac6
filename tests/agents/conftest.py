"""Leyden's services as processes, and a scripted model behind the gateway, for agents of other environments."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leyden_contracts import EpisodeRules, Role, RunSpec, Task, TaskInput, Trajectory, new_run_id
from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage.trajectories import stored_trajectories
from support.faults import BASE_MODEL, Fleet, fleet_in
from support.loop import stored
from support.servers import find_port, process, wait_for
from support.worker import answers

HERE = Path(__file__).parent
QUESTION = "What is 37+58?"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the trajectories into the page that shows them")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the scripted model: a replica, or a provider of somebody else's."""
    port, log = find_port(), tmp_path_factory.mktemp("model") / "model.log"
    program = HERE.parent / "support/scripted_engine.py"
    with process([sys.executable, str(program), str(port)], log):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/healthz"), 60, "the scripted model")
        yield url


@dataclass
class Stage:
    """Where agents are run."""

    fleet: Fleet
    model: str

    def play(self, tasks: dict[str, dict[str, Any]], seconds: float, **rules: Any) -> dict[str, Trajectory]:
        """Run each named task in an episode of its own; return name -> trajectory."""
        spec = RunSpec(
            id=new_run_id(),
            base_model=BASE_MODEL,
            agent="environment_agent:run",
            grader="environment_agent:right",
            roles={"policy": Role(), "checker": Role(trained=False, models=["gpt-4o-mini"])},
            episodes=EpisodeRules(**{"timeout_s": 240, "max_attempts": 1, **rules}),
        )
        run = str(self.fleet.client.create_run(spec).spec.id)
        inputs = {name: {"question": QUESTION, **task} for name, task in tasks.items()}
        entered = {name: Task.of(TaskInput(input=input, expected="95")) for name, input in inputs.items()}
        lines = [TaskInput(input=task.input, expected=task.expected) for task in entered.values()]
        self.fleet.client.upload_tasks(run, lines, purpose="eval", policy_version=0)
        self.fleet.outcome(run, len(tasks), seconds)
        states = {episode.task: (episode.state, episode.message) for episode in self.fleet.episodes(run)}
        for name, task in entered.items():
            assert states[task.id][0] == "succeeded", (name, states[task.id])
        found = {one.task: one for one in stored_trajectories(stored(self.fleet.deployment), run)}
        return {name: found[task.id] for name, task in entered.items()}


@pytest.fixture(scope="session")
def stage(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with fleet_in(folder, agent_path=HERE, worker_concurrency=2) as fleet:
        asyncio.run(_serve(fleet, model))
        yield Stage(fleet, model)


async def _serve(fleet: Fleet, url: str) -> None:
    """Put the scripted model in the place of the fleet's own."""
    ledger = Ledger.connect(fleet.deployment.redis_url)
    await ledger.replicas.beat(ReplicaStatus(id="replica-0", url=url, base_model=BASE_MODEL), 3600)
    await ledger.aclose()
