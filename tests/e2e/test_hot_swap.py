"""Versions go live on two replicas under load: no call fails, and each is answered by the version on its span."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import pytest
import torch

from leyden_contracts import AttemptResult, FailureReason, Sampling, Transition
from leyden_gateway.server import serve
from leyden_gateway.settings import GatewaySettings
from leyden_ledger import Ledger
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_traces import unpack_ids, unpack_logprobs
from support.episodes import Planned, accept
from support.gateway import Collector, listening
from support.servers import find_port
from support.tiny_model import make_model
from support.versions import KEY, NAME, RUN, SPEC, State, Writer, engine, loader
from support.vllm import API_KEY as VLLM_KEY
from support.vllm import vllm_server

VERSIONS = 20
AGENTS = 4
CALLS = 3
"""Of each episode: all of one version."""
EPISODES = 2000
STEP = 0.05
"""How far the weights move from version to version: far enough to tell them apart by a few tokens' logprobs."""
SAME = 2e-3
"""Two engines' logprobs of the same tokens and weights differ by less (float32)."""


@dataclass
class Load:
    """Agents that call without pause."""

    ledger: Ledger
    tokens: Tokens
    gateway: str
    calls: int = 0
    failures: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _episodes: "itertools.count[int]" = field(default_factory=itertools.count)

    async def agent(self, session: aiohttp.ClientSession) -> None:
        """Play one episode after the other."""
        while not self.stop.is_set():
            episode = f"g{next(self._episodes)}.0"
            assert await self.ledger.episodes.claim(RUN, episode, "w", 300)
            token = self.tokens.mint(Scope.ATTEMPT, 600, run=RUN, episode=episode, attempt=1)
            for number in range(CALLS):
                await self._call(session, token, f"{episode} {number}", stream=number == 1)
            lost = AttemptResult(outcome="failed", reason=FailureReason.CANCELLED)
            await self.ledger.episodes.close(RUN, episode, 1, lost)

    async def _call(self, session: aiohttp.ClientSession, token: str, text: str, stream: bool) -> None:
        body = {"model": "policy", "messages": [{"role": "user", "content": text}], "stream": stream}
        headers = {"Authorization": f"Bearer {token}"}
        async with session.post(f"{self.gateway}/v1/chat/completions", json=body, headers=headers) as answer:
            said = await answer.text()
        self.calls += 1
        if answer.status != 200 or (stream and '"error"' in said):
            self.failures.append(f"{answer.status} {said[:300]}")


async def test_two_embedded_engines(ledger: Ledger, store: LocalStore, redis_url: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", hidden=128, context=512)
    with ExitStack() as stack:
        urls = []
        for _ in range(2):
            port = find_port()
            stack.enter_context(engine(model, port, tmp_path))
            urls.append(f"http://127.0.0.1:{port}")
        await hot_swap(stack, urls, KEY, model, ledger, store, redis_url, tmp_path, versions=6)


@pytest.mark.vllm
@pytest.mark.timeout(1500)
async def test_two_vllms(ledger: Ledger, store: LocalStore, redis_url: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", hidden=128, context=512)
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("a", "b")]
        for folder in folders:
            folder.mkdir()
        urls = [stack.enter_context(vllm_server(model, NAME, folder, core)) for core, folder in enumerate(folders)]
        await hot_swap(stack, urls, VLLM_KEY, model, ledger, store, redis_url, tmp_path, versions=VERSIONS)


async def hot_swap(
    stack: ExitStack,
    urls: list[str],
    key: str,
    model: Path,
    ledger: Ledger,
    store: LocalStore,
    redis_url: str,
    folder: Path,
    versions: int,
) -> None:
    """Publish `versions` under load; then look at every call."""
    torch.set_num_threads(1)
    # Stale enough for all episodes to start now: nobody trains on them.
    algorithm = SPEC.algorithm.model_copy(update={"max_staleness": 1000})
    spec = SPEC.model_copy(update={"algorithm": algorithm, "sampling": Sampling(max_tokens=24)})
    await ledger.runs.create(spec)
    writer = Writer(model, ledger, store)
    await accept(ledger, RUN, [Planned(f"g{n}") for n in range(EPISODES)])
    await ledger.episodes.release(RUN)
    for name, url in zip(("replica-a", "replica-b"), urls, strict=True):
        stack.enter_context(loader(url, key, redis_url, folder, name))
    async with gateway_before(ledger, redis_url, key) as (load, collector):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
            agents = [asyncio.create_task(load.agent(session)) for _ in range(AGENTS)]
            states = [writer.state()]
            for version in range(1, versions + 1):
                name = await writer.publish(STEP)
                states.append(writer.state())
                await both_ready(ledger, name)
                await probe(urls, key, name, writer)
                before = load.calls
                while load.calls < before + 2 * AGENTS:
                    await asyncio.sleep(0.02)
                assert not load.failures, version
            load.stop.set()
            await asyncio.gather(*agents)
        calls = await collector.calls(load.calls)
    assert not load.failures
    await check_calls(calls, writer, states, versions)


@asynccontextmanager
async def gateway_before(ledger: Ledger, redis_url: str, key: str) -> AsyncIterator[tuple[Load, Collector]]:
    """Run a gateway and a collector that keeps every span."""
    signing_key = "test-signing-key-of-more-than-32-characters"
    tokens = Tokens(signing_key)
    collector = Collector(find_port(), tokens)
    await collector.start()
    port, stop = find_port(), asyncio.Event()
    values = {"redis_url": redis_url, "signing_key": signing_key, "engine_api_key": key, "port": port}
    settings = GatewaySettings.model_validate({**values, "collector_url": collector.url})
    serving = asyncio.create_task(serve(settings, tokens, stop))
    await listening(port)
    yield Load(ledger, tokens, f"http://127.0.0.1:{port}"), collector
    stop.set()
    await serving
    await collector.stop()


async def both_ready(ledger: Ledger, name: str) -> None:
    """Wait until both replicas have proved the version."""
    async with asyncio.timeout(120):
        while [name in replica.ready for replica in await ledger.replicas.list()] != [True, True]:
            for replica in await ledger.replicas.list():
                assert name not in replica.rejected, replica.rejected
            await asyncio.sleep(0.01)


async def probe(urls: list[str], key: str, name: str, writer: Writer) -> None:
    """Ask each replica itself for logprobs of the probes' next tokens, and compare them with the learner's."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
        for url, one in itertools.product(urls, writer.probes):
            for place in (len(one.token_ids) // 2, len(one.token_ids) - 1):
                body = {"model": name, "prompt": one.token_ids[:place], "max_tokens": 1, "temperature": 1}
                body |= {"logprobs": 20, "return_tokens_as_token_ids": True}
                async with session.post(f"{url}/v1/completions", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    listed = (await answer.json())["choices"][0]["logprobs"]["top_logprobs"][0]
                for token, logprob in listed.items():
                    ids = [*one.token_ids[:place], int(token.removeprefix("token_id:"))]
                    expected = await asyncio.to_thread(writer.policy.sequence_logprobs, ids)
                    assert abs(logprob - expected[-1]) < SAME, f"{url} serves something else as {name}"


async def check_calls(calls: list[Transition], writer: Writer, states: list[State], versions: int) -> None:
    """Find, for every call, the version whose logprobs it has: the one on its span, and no other."""
    assert {call.policy_version for call in calls} >= set(range(1, versions + 1))
    assert {call.replica for call in calls} == {"replica-a", "replica-b"}
    by_episode: dict[str, set[int]] = {}
    for call in calls:
        by_episode.setdefault(call.episode, set()).add(call.policy_version)
    assert all(len(pinned) == 1 for pinned in by_episode.values()), "a version stays for its attempt"
    for version, state in enumerate(states):
        writer.policy.load_adapter_state(state)
        for call in (call for call in calls if abs(call.policy_version - version) <= 1):
            distance = await asyncio.to_thread(apart, writer, call)
            if call.policy_version == version:
                assert distance < SAME, (
                    f"call {call.episode}/{call.number} on {call.replica} is not version {version}'s"
                )
            elif len(call.response_token_ids) >= 16:
                assert distance > SAME, "the versions are too much alike for this test"


def apart(writer: Writer, call: Transition) -> float:
    """Return the largest difference of a call's logprobs from those of the writer's present weights."""
    prompt, response = unpack_ids(call.prompt_token_ids).tolist(), unpack_ids(call.response_token_ids).tolist()
    expected = writer.policy.sequence_logprobs([*prompt, *response])[len(prompt) - 1 :]
    return float(np.abs(unpack_logprobs(call.response_logprobs) - np.array(expected)).max())
