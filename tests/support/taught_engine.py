"""The embedded engine with a model that has learnt one answer, and a gateway's world before it."""

import asyncio
import contextlib
import json
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from leyden_contracts import Transition
from leyden_engine.server import Server
from leyden_engine.settings import EngineSettings
from leyden_ledger import Ledger
from leyden_runtime.tokens import Tokens
from leyden_traces import unpack_ids
from support.gateway import Collector, Engine, Gateway, World
from support.servers import find_port, wait_for
from support.tiny_model import START, make_model, teach

KEY = "engine-key"
QUESTION = "What is 37+58?"
"""With the tool `add` and no system prompt, the model answers with `CALL`."""
BEFORE = "Wait. "
CALL = BEFORE + '<tool_call>\n{"name": "add", "arguments": {"a": 37, "b": 58}}\n</tool_call>'
ARGUMENTS = {"a": 37, "b": 58}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


@dataclass
class TaughtEngine:
    """A running engine, and its own record of every reply."""

    url: str
    log: Path

    def logged(self) -> dict[str, dict]:
        """Response id -> the engine's own line."""
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else []
        return {line["response_id"]: line for line in lines}


def taught_model(folder: Path, **shape: int) -> Path:
    """Write a model that has learnt its answer; returns where."""
    make_model(folder / "model", special_tags=True, **shape)
    prompt = f"{START}system\nadd <|im_end|>\n{START}user\n{QUESTION}<|im_end|>\n{START}assistant\n"
    teach(folder / "model", prompt, CALL)
    return folder / "model"


@contextmanager
def taught_engine(folder: Path) -> Iterator[TaughtEngine]:
    """Teach a model, and serve it from a thread."""
    log, port = folder / "calls.jsonl", find_port()
    settings = EngineSettings(
        model=taught_model(folder),
        served_name="tiny",
        port=port,
        engine_api_key=SecretStr(KEY),
        call_log=log,
        threads=1,
    )
    server, url = Server(settings), f"http://127.0.0.1:{port}"
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(stop)))
    thread.start()
    try:
        wait_for(lambda: _healthy(url), 30, "the engine")
        yield TaughtEngine(url, log)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()


@asynccontextmanager
async def before(
    engine: TaughtEngine, ledger: Ledger, redis_url: str, signing_key: str, key: str = KEY, **spec: object
) -> AsyncIterator[tuple[World, Gateway]]:
    """Yield a world with a run whose only replica is `engine`, which takes `key`, and a gateway."""
    tokens = Tokens(signing_key)
    collector = Collector(find_port(), tokens)
    await collector.start()
    world = World(ledger, tokens, Engine(find_port()), collector, redis_url, signing_key)
    try:
        await world.make_run(**{"sampling": {"temperature": 0.01, "max_tokens": 60}, **spec})
        await world.beat(url=engine.url)
        yield world, await world.gateway(engine_api_key=key)
    finally:
        for client in world.clients:
            await client.close()
        for gateway in world.gateways:
            await gateway.finish()
        await collector.stop()


async def exact(world: World, engine: TaughtEngine, count: int) -> list[Transition]:
    """Check that there were `count` calls, and that each was recorded as the engine logged it."""
    calls, logged = await world.collector.calls(count), engine.logged()
    assert len(calls) == await world.counted() == count
    for call in calls:
        line, prompt, response = logged[call.response_id], *map(_ids, (call.prompt_token_ids, call.response_token_ids))
        assert (prompt, response) == (line["prompt_token_ids"], line["response_token_ids"])
        assert call.response_logprobs.hex() == line["logprobs"]
        assert len(response) == len(call.response_logprobs) // 4 > 0
    return calls


def _ids(packed: bytes) -> list[int]:
    return unpack_ids(packed).tolist()


def _healthy(url: str) -> bool:
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f"{url}/health", timeout=1).status == 200
    return False
