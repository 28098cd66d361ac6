"""A gateway that real clients talk to, before the embedded engine or one that plays vLLM."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from leyden_contracts import Transition
from leyden_ledger import Ledger
from leyden_runtime.tokens import Tokens
from leyden_traces import pack_logprobs, unpack_ids, unpack_logprobs
from support.gateway import Collector, Engine, World
from support.played import Replica
from support.real_engine import KEY, RealEngine, real_engine
from support.servers import find_port
from support.tiny_model import make_model, teach

# No client may call home. They read these when they are imported.
os.environ.update(
    LANGSMITH_TRACING="false",
    LANGCHAIN_TRACING_V2="false",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    LITELLM_TELEMETRY="False",
    DO_NOT_TRACK="1",
)

QUESTION = "What is 37 + 58?"
ARGUMENTS = {"expression": "37 + 58"}
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "37 + 58"}}\n</tool_call>'
WITH_TOOL = (
    f"<|im_start|>system\ncalculator <|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
)


@dataclass
class Agent:
    """What an agent is given, and what was recorded of it."""

    world: World
    url: str
    """The gateway, with `/v1`."""
    key: str
    logged: Callable[[], dict[str, dict]]

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": self.key}

    async def recorded(self, count: int, tokens: int) -> list[Transition]:
        """Check that there are `count` calls, of `tokens` tokens in all, each as the engine wrote it."""
        calls = await self.world.collector.calls(count)
        logged = self.logged()
        assert len(calls) == count == await self.world.counted()
        for call in calls:
            ids, prompt = unpack_ids(call.response_token_ids), unpack_ids(call.prompt_token_ids)
            said = logged[call.response_id]
            assert len(ids) == len(unpack_logprobs(call.response_logprobs))
            assert prompt.tolist() == said["prompt_token_ids"]
            assert ids.tolist() == said["response_token_ids"]
            assert call.response_logprobs.hex() == said["logprobs"]
        assert sum(len(unpack_ids(call.response_token_ids)) for call in calls) == tokens
        return calls


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    """The embedded engine, with a model that calls a calculator when it has one, and babbles otherwise."""
    folder = tmp_path_factory.mktemp("engine")
    model = make_model(folder / "model")
    teach(model, WITH_TOOL, CALL)
    with real_engine(folder, model) as engine:
        yield engine


@pytest.fixture
async def world(ledger: Ledger, redis_url: str, signing_key: str) -> AsyncIterator[World]:
    tokens = Tokens(signing_key)
    engine, collector = Replica(find_port()), Collector(find_port(), tokens)
    await engine.start()
    await collector.start()
    world = World(ledger, tokens, engine, collector, redis_url, signing_key)
    await world.make_run(
        sampling={"max_tokens": 110, "temperature": 0.1}, roles={"policy": {}, "helper": {"trained": False}}
    )
    yield world
    for gateway in world.gateways:
        await gateway.finish()
    await engine.stop()
    await collector.stop()


@pytest.fixture
async def agent(world: World, real: RealEngine) -> Agent:
    """An agent whose policy is in the embedded engine."""
    await world.beat(url=real.url)
    gateway = await world.gateway(engine_api_key=KEY)
    return Agent(world, f"{gateway.url}/v1", world.token(), real.logged)


@pytest.fixture
async def played(world: World) -> Agent:
    """An agent whose policy is played."""
    await world.beat()
    gateway = await world.gateway()
    return Agent(world, f"{gateway.url}/v1", world.token(), lambda: _logged(world.engine))


def _logged(engine: Engine) -> dict[str, dict]:
    return {body["id"]: _line(body) for body in engine.answered}


def _line(body: dict) -> dict:
    (choice,) = body["choices"]
    logprobs = choice["logprobs"]
    values = logprobs.get("token_logprobs") or [entry["logprob"] for entry in logprobs["content"]]
    return {
        "prompt_token_ids": body["prompt_token_ids"],
        "response_token_ids": choice["token_ids"],
        "logprobs": pack_logprobs(values).hex(),
    }
