"""A task API on loopback, in a thread of its own; and whoever plays worker and collector behind it."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn

from leyden_contracts import AdapterManifest, AttemptResult, Episode, Probe, RunSpec
from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage import ObjectStore
from leyden_storage.keys import adapter_prefix, manifest_key
from leyden_task_api.app import create_app
from leyden_task_api.parts import Parts, open_parts
from leyden_task_api.settings import TaskApiSettings
from support.playing import settle_all
from support.servers import find_port, wait_for

SPEC = {
    "base_model": "tiny",
    "agent": "my_agent:solve",
    "grader": "my_agent:grade",
    "group_size": 2,
    "algorithm": {"groups_per_step": 2},
}

Reward = Callable[[Episode], float | None]
"""An episode's reward, or None: it fails."""
Settle = Callable[[Ledger, str, str], Awaitable[None]]
"""Given ledger, run and episode: what becomes of a closed attempt."""


@contextmanager
def task_api(settings: TaskApiSettings, port: int = 0) -> Iterator[str]:
    """Serve the application (without its loops) for the length of the block; yields its URL."""
    port = port or find_port()
    loop = asyncio.new_event_loop()
    config: list[uvicorn.Server] = []
    parts: list[Parts] = []

    async def serve() -> None:
        parts.append(open_parts(settings, asyncio.Event()))
        app = create_app(parts[0])
        server = uvicorn.Server(
            uvicorn.Config(
                app, host="127.0.0.1", port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=3
            )
        )
        config.append(server)
        await server.serve()
        await parts[0].ledger.aclose()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    wait_for(lambda: bool(config) and config[0].started, 60, "the task API")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(parts[0].stop.set)
        config[0].should_exit = True
        thread.join(10)
        loop.close()


async def play(
    ledger: Ledger,
    run: str,
    reward: Reward,
    version: int = 0,
    pin: int | None = None,
    settle: Settle = lambda ledger, run, id: settle_all(ledger, run),
) -> int:
    """Run everything that is due, as a worker and a collector would; return how many episodes that was.

    Episodes run on the version they ask for, else on `version`; `pin` overrules both, as no gateway should. `settle`
    does what the collector would do with a closed attempt; without it there are no trajectories.
    """
    await ledger.episodes.release(run)
    due = await ledger.episodes.due(run, 1000, 60)
    for id in due:
        claim = await ledger.episodes.claim(run, id, "worker", 60)
        if claim is None:
            continue
        wanted = claim.policy_version if claim.policy_version is not None else version
        await ledger.calls.pin(run, id, claim.attempt, wanted if pin is None else pin)
        number = reward(await ledger.episodes.get(run, id))
        if number is None:
            result = AttemptResult(outcome="failed", reason="agent_error", message="it raised")
        else:
            result = AttemptResult(outcome="graded", reward=number)
        await ledger.episodes.close(run, id, claim.attempt, result)
        if number is not None:
            await settle(ledger, run, id)
    return len(due)


def put_adapter(store: ObjectStore, run: str, version: int, reward: float = 0.0) -> dict[str, bytes]:
    """Store a checkpoint as the learner would; return its files."""
    files = {"adapter_model.safetensors": b"w" * version, "adapter_config.json": b"{}", "optimizer.pt": b"o"}
    for name, content in files.items():
        store.put(adapter_prefix(run, "policy", version) + name, content)
    manifest = AdapterManifest(
        run=run,
        role="policy",
        version=version,
        parent=version - 1,
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        groups=[f"g-{version}"],
        trained_episodes=[f"g-{version}.0"],
        skipped={f"g-{version}": "equal_rewards"},
        probes=[
            Probe(
                token_ids=[1],
                places=[1],
                next_ids=[2],
                logprobs=[-1.0],
                parent_logprobs=[-2.0],
                base_logprobs=[-3.0],
            )
        ],
        metrics={"reward_mean": reward},
        config={},
        created=0.0,
    )
    store.put(manifest_key(run, "policy", version), manifest.model_dump_json().encode())
    return files


@contextmanager
def played(redis_url: str, store: ObjectStore, reward: Reward) -> Iterator[None]:
    """Play worker, collector, learner and adapter_loader of every run, in a thread, for the length of the block."""
    stop = threading.Event()

    async def go() -> None:
        ledger = Ledger.connect(redis_url)
        await ledger.replicas.beat(ReplicaStatus(id="one", url="http://r", base_model="tiny"), 600)
        while not stop.is_set():
            for run in await ledger.runs.list():
                await play(ledger, run, reward, (await ledger.runs.summary(run)).version_ready)
                await _learn(ledger, store, run)
            await asyncio.sleep(0.02)
        await ledger.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(go()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


async def _learn(ledger: Ledger, store: ObjectStore, run: str) -> None:
    spec, summary = await ledger.runs.get(run), await ledger.runs.summary(run)
    step = spec.algorithm.groups_per_step
    if summary.groups_finished - summary.groups_consumed >= step:
        version = summary.version_published + 1
        total, n = summary.rewards.get("train", (0.0, 0))
        put_adapter(store, run, version, total / n if n else 0.0)
        await ledger.training.publish(run, version)
        await ledger.training.consumed(run, version * step)
        await ledger.replicas.mark_ready(run, version)
    elif summary.state == "sealed" and summary.groups_consumed == await _train_groups(ledger, run, spec):
        await ledger.runs.finish(run)


async def _train_groups(ledger: Ledger, run: str, spec: RunSpec) -> int:
    counts = (await ledger.runs.summary(run)).counts
    return sum(n for name, n in counts.items() if name.startswith("train:")) // spec.group_size
