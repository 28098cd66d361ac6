"""A replica whose policies are arithmetic, that misbehaves on request; and adapters for it."""

import asyncio
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from leyden_contracts import AdapterManifest, Probe, RunSpec, adapter_name
from leyden_ledger import Ledger
from leyden_storage import ObjectStore
from leyden_storage.keys import adapter_prefix, manifest_key
from support.servers import find_port

RUN, ROLE, BASE_MODEL, API_KEY = "run-a", "policy", "tiny", "replica-test-key"
PROMPTS = ([3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8], list(range(40)))
SPEC = RunSpec(id=RUN, base_model=BASE_MODEL, agent="a:b", grader="a:c")


def logprobs(weights: float, token_ids: Sequence[int]) -> list[float]:
    """Return logprobs of tokens 2..T by the policy with these `weights`; 0 is the base model."""
    places = range(1, len(token_ids))
    return [-2 - math.sin(token_ids[t] + t) + weights * math.cos(3 * token_ids[t] + t) for t in places]


def name_of(version: int, run: str = RUN) -> str:
    """Return the adapter's name."""
    return adapter_name(run, ROLE, version)


def files_of(weights: float) -> dict[str, bytes]:
    """Return an adapter's files."""
    return {
        "adapter_config.json": b"{}",
        "adapter_model.safetensors": json.dumps({"weights": weights}).encode(),
        "optimizer.safetensors": b"not for replicas",
    }


def manifest_of(
    version: int, weights: float, parent: float = 0.0, files: dict[str, bytes] | None = None
) -> AdapterManifest:
    """Return the manifest of a version with these weights, whose parent had those."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in (files or files_of(weights)).items()}
    probes = [
        Probe(
            token_ids=list(ids),
            places=list(range(1, len(ids))),
            next_ids=list(ids[1:]),
            logprobs=logprobs(weights, ids),
            parent_logprobs=logprobs(parent, ids),
            base_logprobs=logprobs(0, ids),
        )
        for ids in PROMPTS
    ]
    return AdapterManifest(
        run=RUN,
        role=ROLE,
        version=version,
        parent=version - 1,
        files=hashes,
        groups=[f"g{version}"],
        trained_episodes=[],
        skipped={},
        probes=probes,
        metrics={},
        config={},
        created=0.0,
    )


def store_version(store: ObjectStore, version: int, weights: float, parent: float = 0.0) -> AdapterManifest:
    """Write a version to the store."""
    manifest = manifest_of(version, weights, parent)
    for name, data in files_of(weights).items():
        store.put(adapter_prefix(RUN, ROLE, version) + name, data)
    store.put(manifest_key(RUN, ROLE, version), manifest.model_dump_json().encode())
    return manifest


async def publish(store: ObjectStore, ledger: Ledger, version: int, weights: float, parent: float = 0.0) -> None:
    """Write a version and announce it."""
    store_version(store, version, weights, parent)
    await ledger.training.publish(RUN, version)


@dataclass(slots=True)
class FakeReplica:
    """Speaks the subset of vLLM's API that a loader uses."""

    port: int = field(default_factory=find_port)
    adapters: dict[str, float] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """`load NAME`, `unload NAME`, `probe NAME`, in order."""
    applies: float | None = None
    """What a load silently applies instead of the files' weights."""
    load_status: int = 200
    noise: float = 0.0
    hide_once: set[str] = field(default_factory=set)
    """Names that the next list lacks: they are loaded just after it."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start, with nothing loaded."""
        self.adapters.clear()
        self.gate.set()
        app = web.Application(middlewares=[_only_with_key])
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.post("/v1/load_lora_adapter", self._load),
                web.post("/v1/unload_lora_adapter", self._unload),
                web.post("/v1/completions", self._complete),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        """Stop, as a killed process does."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def seen(self, kind: str) -> list[str]:
        """Return the names of the requests of one kind."""
        return [request.split()[1] for request in self.requests if request.startswith(f"{kind} ")]

    async def _models(self, _: web.Request) -> web.Response:
        shown = [name for name in (BASE_MODEL, *self.adapters) if name not in self.hide_once]
        self.hide_once.clear()
        return web.json_response({"data": [{"id": name} for name in shown]})

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        self.requests.append(f"load {name}")
        await self.gate.wait()
        if self.load_status != 200 or name in self.adapters:
            return web.json_response({"message": "no"}, status=max(self.load_status, 400))
        weights = json.loads((Path(path) / "adapter_model.safetensors").read_bytes())["weights"]
        self.adapters[name] = weights if self.applies is None else self.applies
        self.paths[name] = path
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.requests.append(f"unload {name}")
        return web.Response(status=404 if self.adapters.pop(name, None) is None else 200)

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, ids = body["model"], body["prompt"]
        self.requests.append(f"probe {name}")
        weights = 0.0 if name == BASE_MODEL else self.adapters.get(name)
        if weights is None:
            return web.json_response({"message": f"The model `{name}` does not exist."}, status=404)
        assert (body["max_tokens"], body["temperature"], body["logprobs"]) == (1, 1, 20)
        # What may come next is what came next in some prompt.
        nexts = {prompt[len(ids)] for prompt in PROMPTS if list(prompt[: len(ids)]) == ids and len(prompt) > len(ids)}
        listed = {f"token_id:{token}": logprobs(weights, [*ids, token])[-1] + self.noise for token in nexts}
        return web.json_response(
            {"choices": [{"text": "x", "logprobs": {"top_logprobs": [{"token_id:999": -9, **listed}]}}]}
        )


@web.middleware
async def _only_with_key(request: web.Request, handler: web.RequestHandler) -> web.StreamResponse:
    if request.headers.get("Authorization") != f"Bearer {API_KEY}":
        return web.json_response({"error": "Unauthorized"}, status=401)
    return await handler(request)
