"""Leyden's services as processes, for agents that live in environments of their own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leyden_contracts import EpisodeRules, Role, RunSpec, Sampling, Task, TaskInput, Trajectory, new_run_id
from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage.trajectories import stored_trajectories
from support.faults import BASE_MODEL, Fleet, fleet_in
from support.loop import stored
from support.real_engine import KEY

AGENTS = Path(__file__).parents[1] / "agents"
QUESTION = "What is 37+58?"


@dataclass
class Stage:
    """Where agents are run."""

    fleet: Fleet
    model: str
    """The URL of the model behind the gateway."""

    def play(self, tasks: dict[str, dict[str, Any]], seconds: float, **rules: Any) -> dict[str, Trajectory]:
        """Run each named task in an episode of its own; return name -> trajectory."""
        spec = RunSpec(
            id=new_run_id(),
            base_model=BASE_MODEL,
            agent="environment_agent:run",
            grader="environment_agent:right",
            sampling=Sampling(max_tokens=64, temperature=0.01),
            roles={"policy": Role(), "checker": Role(trained=False, models=["gpt-4o-mini"])},
            episodes=EpisodeRules(**{"timeout_s": 600, "max_attempts": 1, **rules}),
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


@contextmanager
def stage_in(folder: Path, model: str) -> Iterator[Stage]:
    """Run the services, with the engine at `model`, which takes `KEY`, behind the gateway."""
    # Frameworks keep things in the home directory, which is not theirs here.
    settings = {"HOME": str(folder)}
    with fleet_in(folder, settings, agent_path=AGENTS, worker_concurrency=2, engine_api_key=KEY) as fleet:
        asyncio.run(_serve(fleet, model))
        yield Stage(fleet, model)


async def _serve(fleet: Fleet, url: str) -> None:
    """Put the engine in the place of the fleet's own."""
    ledger = Ledger.connect(fleet.deployment.redis_url)
    await ledger.replicas.beat(ReplicaStatus(id="replica-0", url=url, base_model=BASE_MODEL), 3600)
    await ledger.aclose()
