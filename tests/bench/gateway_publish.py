"""From the end of an optimizer step to the first token of the new version from every replica, through the gateway.

Two embedded engines, a loader beside each, one gateway, and in this process the learner: real groups, real steps, real
checkpoints. When an answer came, and from whom, is what the gateway's spans say.
"""

import asyncio
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp
from gateway_calls import script, show
from ledger_parts import HERE, KEY, middle, service

from leyden_contracts import RunSpec, adapter_name
from leyden_gateway.replicas import Replicas
from leyden_learner import checkpoint
from leyden_learner.batch import Batch
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_learner.trainer import ADAPTER, ADAPTER_CONFIG, Trainer
from leyden_ledger import Ledger, ReplicaStatus
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.keys import adapter_prefix
from support import episodes, playing
from support.episodes import Planned
from support.servers import redis_server
from support.tiny_model import make_model

RUN, ROLE, BASE, ENGINE_KEY = "bench-publish", "policy", "tiny", "an-engine-key"
REPLICAS = ("r0", "r1")
REWARDS = (0.0, 1.0)
_EPISODES = 16
"""Evaluated on each version: enough for each replica to be the own one of some."""
_PAUSE_S = 0.005
"""Between two questions of one asker."""
_PATIENCE_S = 60


class TimedTrainer(Trainer):
    """The learner's trainer, which notes when its optimizer step ended."""

    stepped_ns = 0

    def step(self, batch: Batch) -> dict[str, dict[str, float]]:
        """See `Trainer.step`. The clock is that of the spans."""
        assert batch.samples, "without a signal there would be no new weights"
        metrics = super().step(batch)
        self.stepped_ns = time.time_ns()
        return metrics


@dataclass(frozen=True)
class Parts:
    """What runs around the learner."""

    ledger: Ledger
    store: LocalStore
    trainer: TimedTrainer
    training: RunTraining
    engine: str
    """URL of one replica."""
    gateway: str
    sink: str
    scratch: Path


@contextmanager
def replicas(folder: Path, redis_url: str, model: Path) -> Iterator[list[str]]:
    """Run the engines with their loaders; yields the engines' URLs."""
    with ExitStack() as stack:
        urls = []
        for name in REPLICAS:
            own = {"model": model, "served_name": BASE, "engine_api_key": ENGINE_KEY}
            _, url = stack.enter_context(service("engine", folder, redis_url, **own))
            beside = {"replica_url": url, "replica_id": name, "base_model": BASE, "cache_dir": folder / "cache"}
            beside |= {"engine_api_key": ENGINE_KEY}
            stack.enter_context(service("adapter_loader", folder, redis_url, **beside))
            urls.append(url)
        yield urls


async def one_version(parts: Parts, version: int) -> dict[str, float]:
    """Train, publish and ask for `version`; return milliseconds: until it is served, and unavoidable ones."""
    await playing.play(parts.ledger, parts.store, f"train-{version}", REWARDS, version - 1, RUN)
    assert await parts.training.advance() is Progress.TRAINED
    published_ns, begun_ns = time.time_ns(), parts.trainer.stepped_ns
    ends = await _ask_all(parts, version)
    for index in range(_EPISODES):
        await parts.ledger.episodes.cancel(RUN, f"eval-{version}.{index}")
    await parts.ledger.episodes.release(RUN)
    costs = await asyncio.to_thread(_unavoidable, parts, version)
    return {
        "served": (max(ends.values()) - begun_ns) / 1e6,
        "published": (published_ns - begun_ns) / 1e6,
        "first": (min(ends.values()) - begun_ns) / 1e6,
        **costs,
    }


async def _ask_all(parts: Parts, version: int) -> Mapping[str, int]:
    """Ask for `version` until every replica has answered with it; return when each first did, in nanoseconds."""
    group = Planned(f"eval-{version}", purpose="eval", size=_EPISODES, version=version)
    await episodes.accept(parts.ledger, RUN, [group])
    asked = [f"{group.id}.{index}" for index in range(_EPISODES)]
    claims = [await parts.ledger.episodes.claim(RUN, episode, "bench", 3600) for episode in asked]
    assert all(claims)
    async with aiohttp.ClientSession() as session:
        asking = [asyncio.create_task(_ask(session, parts, episode)) for episode in _spread(asked)]
        try:
            return await _answered(session, parts.sink, version)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


def _spread(asked: Sequence[str]) -> list[str]:
    """Return an episode for each replica: the first that the gateway will send to it."""
    choice = Replicas(None, 1)  # type: ignore[arg-type]
    known = [ReplicaStatus(id=name, url="", base_model=BASE) for name in REPLICAS]
    own = {choice.choose(known, episode).id: episode for episode in reversed(asked)}
    assert len(own) == len(REPLICAS), "no episode falls to one of the replicas: ask with more"
    return list(own.values())


async def _ask(session: aiohttp.ClientSession, parts: Parts, episode: str) -> None:
    token = Tokens(KEY).mint(Scope.ATTEMPT, 3600, run=RUN, episode=episode, attempt=1)
    body = {"model": ROLE, "messages": [{"role": "user", "content": "What is 37 + 58?"}], "max_tokens": 1}
    headers = {"Authorization": f"Bearer {token}"}
    while True:
        async with session.post(f"{parts.gateway}/v1/chat/completions", json=body, headers=headers) as answer:
            text = await answer.text()
        if answer.status != 200:
            raise SystemExit(f"the gateway answered {answer.status}: {text[:300]}")
        await asyncio.sleep(_PAUSE_S)


async def _answered(session: aiohttp.ClientSession, sink: str, version: int) -> Mapping[str, int]:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        async with session.get(f"{sink}/healthz") as answer:
            ends = json.loads(await answer.text())["first"].get(str(version), {})
        if ends.keys() >= set(REPLICAS):
            return ends
        await asyncio.sleep(0.02)
    raise SystemExit(f"only {sorted(ends)} served version {version} within {_PATIENCE_S} s")


def _unavoidable(parts: Parts, version: int) -> dict[str, float]:
    """Do once more, and alone, what every publisher must do with this adapter; return the milliseconds of each."""
    times, start = {}, time.perf_counter()

    def lap(name: str) -> None:
        nonlocal start
        now = time.perf_counter()
        times[name], start = (now - start) * 1000, now

    files = parts.trainer.files("policy")
    lap("save")
    adapter = {name: files[name] for name in (ADAPTER, ADAPTER_CONFIG)}
    checkpoint.digests(adapter)
    lap("hash")
    store, prefix = LocalStore(parts.scratch), adapter_prefix(RUN, ROLE, version)
    start = time.perf_counter()
    for name, data in adapter.items():
        store.put(prefix + name, data)
    lap("fsync")
    name = adapter_name("again", ROLE, version)
    _post(f"{parts.engine}/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(parts.scratch / prefix)})
    lap("load")
    _post(f"{parts.engine}/v1/unload_lora_adapter", {"lora_name": name})
    return times


def _post(url: str, body: Mapping[str, str]) -> None:
    headers = {"Authorization": f"Bearer {ENGINE_KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


async def _measure(folder: Path, redis_url: str, model: Path, urls: Mapping[str, str], versions: int) -> list[dict]:
    spec = _spec()
    ledger, store = Ledger.connect(redis_url), LocalStore(folder / "store")
    try:
        # One version more: the first is for warming up.
        await playing.accept(ledger, spec, [f"train-{version}" for version in range(1, versions + 2)])
        trainer = TimedTrainer(spec, model, "cpu")
        training = RunTraining(Surroundings(ledger, store, {BASE: model}, "cpu"), spec, trainer, [])
        parts = Parts(ledger, store, trainer, training, scratch=folder / "scratch", **urls)
        return [await one_version(parts, version) for version in range(1, versions + 2)][1:]
    finally:
        await ledger.aclose()


def _spec() -> RunSpec:
    algorithm: dict[str, Any] = {"learning_rate": 1e-3, "groups_per_step": 1}
    spec = {"id": RUN, "base_model": BASE, "agent": "a:b", "grader": "a:c", "group_size": len(REWARDS)}
    return RunSpec.model_validate(spec | {"algorithm": algorithm, "episodes": {"max_calls": 10**6}})


def report(versions: int) -> None:
    """Measure and print."""
    import torch

    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = make_model(folder / "model")
        redis_url = stack.enter_context(redis_server(folder / "redis"))
        _, sink = stack.enter_context(script(HERE / "gateway_sink.py", folder))
        engines = stack.enter_context(replicas(folder, redis_url, model))
        own = {"collector_url": sink, "engine_api_key": ENGINE_KEY}
        _, url = stack.enter_context(service("gateway", folder, redis_url, **own))
        urls = {"engine": engines[0], "gateway": url, "sink": sink}
        _show(asyncio.run(_measure(folder, redis_url, model, urls, versions)))


def _show(found: Sequence[Mapping[str, float]]) -> None:
    served = [one["served"] for one in found]
    must = ("save", "fsync", "hash", "load")
    overhead = [one["served"] - sum(one[name] for name in must) for one in found]
    _figure("step_to_served_ms.p50", middle(served))
    _figure("step_to_served_ms.p99", quantiles(served, n=100, method="inclusive")[98])
    _figure("overhead_ms.p50", middle(overhead), 300)
    for name in ("published", "first", *must):
        _figure(f"{name}_ms.p50", middle(one[name] for one in found))


def _figure(name: str, milliseconds: float, target: float | None = None) -> None:
    show(name, milliseconds, "ms", target, of="publish")
