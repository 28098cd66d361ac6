"""The whole loop, small: the calculator agent trained for a few steps on a real deployment."""

import asyncio
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leyden_agents.calculator.recipe import BASE_MODEL, MODEL_DIR, demo_run_spec
from leyden_agents.calculator.tasks import eval_tasks, train_tasks
from leyden_client.client import LeydenClient
from leyden_client.training import TrainResult, train
from leyden_contracts import RunSpec, TaskInput
from leyden_ledger import Ledger
from leyden_ledger.check import Violation, check_run
from leyden_standalone.deployment import Deployment, Options
from leyden_standalone.running import running_beside
from leyden_standalone.supervisor import Supervisor
from leyden_storage import ObjectStore, open_store
from leyden_storage.trajectories import stored_trajectories
from support.servers import S3_KEY, S3_SECRET


@contextmanager
def deployed(folder: Path, **options: Any) -> Iterator[tuple[Deployment, Supervisor, LeydenClient]]:
    """Run a deployment of the demo's model; what `options` does not name is embedded."""
    chosen = Options(data_dir=folder, model=MODEL_DIR, model_name=BASE_MODEL, worker_concurrency=16, **options)
    with (
        running_beside(chosen) as (deployment, supervisor),
        LeydenClient(deployment.url("task_api"), deployment.token, patience_s=60) as client,
    ):
        yield deployment, supervisor, client


def small_spec(seed: int = 0, **algorithm: Any) -> RunSpec:
    """Return the demo's specification, cut down to 4 groups of 4 episodes a step."""
    spec = demo_run_spec(seed).model_dump(mode="json")
    spec["group_size"] = 4
    spec["algorithm"] |= {"groups_per_step": 4, **algorithm}
    return RunSpec.model_validate(spec)


def train_small(client: LeydenClient, spec: RunSpec, steps: int, folder: Path, evaluate: int = 0) -> TrainResult:
    """Train `steps` versions on held-in tasks; evaluate on as many held-out ones as asked.

    The adapter goes into `folder`.
    """
    count = steps * spec.algorithm.groups_per_step
    rows = [train_tasks(count, spec.seed), eval_tasks(evaluate, spec.seed)]
    tasks, held_out = ([TaskInput.model_validate(row) for row in part] for part in rows)
    return train(client, spec, tasks, steps, eval_tasks=held_out, folder=folder)


def stored(deployment: Deployment) -> ObjectStore:
    """Open the deployment's object store."""
    return open_store(deployment.store_url, S3_KEY, S3_SECRET)


def violations(deployment: Deployment, run: str) -> list[Violation]:
    """Run the ledger checker."""

    async def check() -> list[Violation]:
        ledger = Ledger.connect(deployment.redis_url)
        try:
            return list(await check_run(ledger, stored(deployment), run))
        finally:
            await ledger.aclose()

    return asyncio.run(check())


def calls_in_store(store: ObjectStore, run: str) -> dict[str, tuple[bytes, bytes, bytes]]:
    """Return response id -> (prompt ids, response ids, logprobs) of every stored transition."""
    steps = [step for trajectory in stored_trajectories(store, run) for step in trajectory.transitions]
    found = {
        step.response_id: (step.prompt_token_ids, step.response_token_ids, step.response_logprobs) for step in steps
    }
    assert len(found) == len(steps), "a reply is stored twice"
    return found


def calls_in_log(path: Path) -> dict[str, tuple[bytes, bytes, bytes]]:
    """Return the same from the embedded engine's own log."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        row["response_id"]: (
            _packed("i", row["prompt_token_ids"]),
            _packed("i", row["response_token_ids"]),
            bytes.fromhex(row["logprobs"]),
        )
        for row in rows
    }


def _packed(kind: str, values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)
