"""One script of attempts, and worlds that play it: the same spans to the last bit, on other ways to the store."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import AttemptResult, RunSpec, Transition
from leyden_ledger import Ledger
from leyden_ledger.check import check_run
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.trajectories import stored_trajectories
from leyden_traces import encode_call, pack_ids, pack_logprobs, span_id, trace_id
from support.collector import PROTOBUF, collector_process
from support.episodes import Planned, accept
from support.servers import redis_server
from support.spans import attribute, request

RUN = "run-a"
KEY = "test-signing-key-of-more-than-32-characters"
_QUICK = {"flush_ms": 5, "poll_ms": 10, "sweep_s": 0.2, "assembly_lease_s": 1}


@dataclass(frozen=True)
class Played:
    """One episode of the script."""

    episode: str
    reward: float
    calls: int
    spans: tuple[Span, ...]
    """Its calls, by the gateway; and its tools, by the agent."""


def script(groups: int, size: int, seed: int = 0) -> list[Played]:
    """Return the episodes of `groups` groups: one to five calls each, whose prompts extend each other."""
    return [_episode(f"g{group}.{index}", seed) for group in range(groups) for index in range(size)]


def _episode(episode: str, seed: int) -> Played:
    rng = random.Random(f"{seed}/{episode}")
    tokens = np.random.default_rng(rng.randrange(2**31))
    trace, spans = trace_id(RUN, episode, 1), []
    prompt = tokens.integers(0, 1000, 40)
    calls = rng.randint(1, 5)
    for number in range(1, calls + 1):
        response = tokens.integers(0, 1000, 12)
        call = Transition(
            run=RUN,
            episode=episode,
            attempt=1,
            number=number,
            role="policy",
            policy_version=0,
            prompt_token_ids=pack_ids(prompt),
            response_token_ids=pack_ids(response),
            response_logprobs=pack_logprobs(-tokens.random(12)),
            temperature=1.0,
            finish_reason="stop",
            response_id=f"chat-{episode}-{number}",
            replica="r0",
        )
        start = 10**18 + number * 10**9
        own = span_id(RUN, episode, 1, number)
        spans.append(encode_call(call, start, start + 10**8, trace, own, b""))
        spans.append(_tool(trace, tokens.bytes(8), number, start + 2 * 10**8))
        prompt = np.concatenate([prompt, response, tokens.integers(0, 1000, 5)])
    return Played(episode, rng.randrange(8) / 8, calls, tuple(spans))


def _tool(trace: bytes, own: bytes, number: int, start: int) -> Span:
    span = Span(name="execute_tool add", trace_id=trace, span_id=own)
    span.start_time_unix_nano, span.end_time_unix_nano = start, start + 10**7
    facts = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": f"call-{number}",
    }
    span.attributes.extend(attribute(name, value) for name, value in facts.items())
    return span


@dataclass
class Stage:
    """A ledger, a store and collectors, where a script is played."""

    folder: Path
    ledger: Ledger
    redis_url: str
    store: LocalStore
    stack: ExitStack
    urls: list[str] = field(default_factory=list)
    _processes: list = field(default_factory=list)

    def add_collector(self) -> None:
        """Start one more collector."""
        running = collector_process(self.folder / "logs", self.redis_url, self.folder / "store", KEY, **_QUICK)
        child, url = self.stack.enter_context(running)
        self._processes.append(child)
        self.urls.append(url)

    def kill_collector(self, index: int) -> None:
        """End a collector with SIGKILL."""
        self.urls.pop(index)
        child = self._processes.pop(index)
        child.kill()
        child.wait()

    async def open(self, episodes: Sequence[Played]) -> None:
        """Enter the run and claim every episode's first attempt."""
        spec: dict = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "group_size": 4}
        spec["algorithm"] = {"groups_per_step": 1000}
        await self.ledger.runs.create(RunSpec.model_validate(spec))
        sizes: dict[str, int] = {}
        for one in episodes:
            group = one.episode.rpartition(".")[0]
            sizes[group] = sizes.get(group, 0) + 1
        await accept(self.ledger, RUN, [Planned(group, size=size) for group, size in sizes.items()], self.store)
        await self.ledger.episodes.release(RUN)
        for one in episodes:
            assert await self.ledger.episodes.claim(RUN, one.episode, "w", 600)
            for _ in range(one.calls):
                await self.ledger.calls.count(RUN, one.episode, 1)

    async def close(self, one: Played) -> None:
        """Report an episode's attempt."""
        result = AttemptResult(outcome="graded", reward=one.reward, output={"said": one.episode})
        assert await self.ledger.episodes.close(RUN, one.episode, 1, result)

    async def ended(self, episodes: Sequence[Played], seconds: float) -> None:
        """Wait until every episode has succeeded."""
        async with asyncio.timeout(seconds):
            while (await self.ledger.runs.summary(RUN)).counts.get("train:succeeded", 0) < len(episodes):
                await asyncio.sleep(0.05)

    async def result(self) -> list[bytes]:
        """Return the trajectories that are stored, as JSON, by episode. The run is checked first."""
        assert await check_run(self.ledger, self.store, RUN) == []
        found = sorted(stored_trajectories(self.store, RUN), key=lambda one: one.episode)
        return [one.model_dump_json().encode() for one in found]


@asynccontextmanager
async def stage(folder: Path, collectors: int) -> AsyncIterator[Stage]:
    """Yield a stage with its collectors running."""
    with ExitStack() as stack:
        redis_url = stack.enter_context(redis_server(folder / "redis"))
        ledger = Ledger.connect(redis_url)
        made = Stage(folder, ledger, redis_url, LocalStore(folder / "store"), stack)
        for _ in range(collectors):
            made.add_collector()
        try:
            yield made
        finally:
            await ledger.aclose()


class Sender:
    """Sends spans until they are acknowledged, as the gateway and agents' exporters do."""

    def __init__(self, made: Stage, session: aiohttp.ClientSession, seed: int) -> None:
        self._stage, self._session = made, session
        self._random = random.Random(seed)

    async def send(self, one: Played, spans: Sequence[Span]) -> None:
        """Send `spans` of one episode: its calls with the gateway's token, its tools with the attempt's."""
        tokens = Tokens(KEY)
        mine = tokens.mint(Scope.ATTEMPT, 600, run=RUN, episode=one.episode, attempt=1)
        calls = [span for span in spans if span.name.startswith("chat")]
        tools = [span for span in spans if not span.name.startswith("chat")]
        for token, part in ((tokens.mint(Scope.SPANS, 600), calls), (mine, tools)):
            if part:
                await self._insist(request(*part).SerializeToString(), token)

    async def _insist(self, body: bytes, token: str) -> None:
        headers = {**PROTOBUF, "Authorization": f"Bearer {token}"}
        while True:
            url = self._random.choice(self._stage.urls) if self._stage.urls else "http://127.0.0.1:9"
            try:
                async with self._session.post(f"{url}/v1/traces", data=body, headers=headers) as answer:
                    assert answer.status in (200, 429, 503), await answer.text()
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.02)


def shuffled(one: Played, rng: random.Random) -> list[Sequence[Span]]:
    """Return the episode's spans in parts: in any order, some of them several times."""
    spans = [*one.spans, *rng.choices(one.spans, k=len(one.spans) // 2)]
    rng.shuffle(spans)
    parts: list[Sequence[Span]] = []
    while spans:
        size = rng.randint(1, 4)
        parts.append(spans[:size])
        spans = spans[size:]
    return parts
