"""A gateway between a real ledger, an engine that can misbehave over the wire, and a collector that takes OTLP."""

import asyncio
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import openai
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import RunSpec, Transition
from leyden_gateway.server import serve
from leyden_gateway.settings import GatewaySettings
from leyden_ledger import Ledger, ReplicaStatus
from leyden_runtime.tokens import Scope, Tokens
from leyden_traces import decode_call
from support.episodes import Planned, accept
from support.servers import find_port

RUN, EPISODE, BASE = "run-1", "g.0", "tiny"
Misbehaviour = Callable[[web.Request, dict], Awaitable[web.StreamResponse]]


class Server:
    """An aiohttp server on a fixed port that can be taken down and brought back."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        raise NotImplementedError

    async def start(self) -> None:
        self._runner = web.AppRunner(self.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()
            self._runner = None


def completion(ask: dict, **changes: object) -> dict:
    """What vLLM answers: ids and logprobs that depend on nothing but chance."""
    length = min(ask.get("max_tokens") or 5, 5)
    ids = [random.randrange(2**31) for _ in range(length)]
    prompt = [random.randrange(50_000) for _ in range(7)]
    logprobs = [{"token": "t", "logprob": -random.expovariate(1), "bytes": [116], "top_logprobs": []} for _ in ids]
    message: dict = {"role": "assistant", "content": "the answer is 42", "refusal": None, "tool_calls": []}
    finish = "stop"
    if ask.get("tools"):
        function = {"name": "calculator", "arguments": '{"expression": "1+2"}'}
        message["content"] = None
        message["tool_calls"] = [{"id": "call-1", "type": "function", "function": function}]
        finish = "tool_calls"
    body: dict = {
        "id": f"chatcmpl-{random.randrange(10**9)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": ask["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": {"content": logprobs},
                "finish_reason": finish,
                "stop_reason": None,
                "token_ids": ids,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": length, "total_tokens": 7 + length},
        "prompt_token_ids": prompt,
        "kv_transfer_params": None,
    }
    return {**body, **changes}


def chunks(body: dict) -> Iterator[dict]:
    """Yield the events of a streamed reply: prompt ids with the role, then one a token, then usage."""
    (choice,) = body["choices"]
    base = {"id": body["id"], "object": "chat.completion.chunk", "created": body["created"], "model": body["model"]}
    empty = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None, "token_ids": None}
    first = {**empty, "delta": {"role": "assistant", "content": ""}}
    yield {**base, "choices": [first], "prompt_token_ids": body["prompt_token_ids"]}
    text, ids = choice["message"]["content"], choice["token_ids"]
    cuts = [len(text) * n // len(ids) for n in range(len(ids) + 1)]
    for n, id in enumerate(ids):
        last = {"finish_reason": choice["finish_reason"], "stop_reason": None} if n == len(ids) - 1 else {}
        delta = {"content": text[cuts[n] : cuts[n + 1]]}
        logprobs = {"content": [choice["logprobs"]["content"][n]]}
        yield {**base, "choices": [{**empty, "delta": delta, "token_ids": [id], "logprobs": logprobs, **last}]}
    yield {**base, "choices": [], "usage": body["usage"]}


class Engine(Server):
    """Speaks the vLLM subset; `misbehave` holds what the next requests get instead."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.answered: list[dict] = []
        self.misbehave: deque[Misbehaviour] = deque()
        self.cancelled = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._chat)])
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = await request.json()
        self.asked.append(ask)
        self.headers.append(dict(request.headers))
        try:
            if self.misbehave:
                return await self.misbehave.popleft()(request, ask)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        body = completion(ask)
        return await self.stream(request, body) if ask["stream"] else self.reply(body)

    def reply(self, body: dict) -> web.Response:
        self.answered.append(body)
        return web.Response(text=json.dumps(body), content_type="application/json")

    async def stream(
        self, request: web.Request, body: dict, tokens: int | None = None, ready: asyncio.Event | None = None
    ) -> web.StreamResponse:
        """Send `body` token by token, as vLLM does; only the first `tokens`, then after `ready` the rest or nothing."""
        self.answered.append(body)
        events = list(chunks(body))
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for number, event in enumerate(events):
            if number - 1 == tokens:
                if ready is None:
                    assert request.transport
                    request.transport.abort()
                    return answer
                await ready.wait()
            await answer.write(f"data: {json.dumps(event)}\n\n".encode())
        await answer.write(b"data: [DONE]\n\n")
        return answer


class Collector(Server):
    """Keeps the spans it is sent; `answers` holds statuses for the next requests."""

    def __init__(self, port: int, tokens: Tokens) -> None:
        super().__init__(port)
        self.spans: list[Span] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.answers: deque[int] = deque()
        self.tries = 0
        self.largest = 10**9
        self.reject = 0
        self._tokens = tokens

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/traces", self._traces)])
        return app

    async def _traces(self, request: web.Request) -> web.Response:
        self.tries += 1
        self._tokens.verify(request.headers["Authorization"].removeprefix("Bearer "), Scope.SPANS)
        if self.answers:
            return web.Response(status=self.answers.popleft())
        message = ExportTraceServiceRequest.FromString(await request.read())
        spans = [span for r in message.resource_spans for s in r.scope_spans for span in s.spans]
        if len(spans) > self.largest:
            return web.Response(status=413)
        self.requests.append(message)
        self.spans += spans
        answer = ExportTraceServiceResponse()
        if self.reject:
            answer.partial_success.rejected_spans = self.reject
        return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")

    async def calls(self, count: int) -> list[Transition]:
        """Wait for `count` call spans; return them by number."""
        await until(lambda: len(self.spans) >= count)
        return sorted((decode_call(span) for span in self.spans), key=lambda call: call.number)


@dataclass
class Gateway:
    """A gateway that serves, and how to talk to it."""

    url: str
    settings: GatewaySettings
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task | None = None

    async def finish(self) -> None:
        self.stop.set()
        if self.task:
            await self.task


@dataclass
class World:
    """Everything around one attempt."""

    ledger: Ledger
    tokens: Tokens
    engine: Engine
    collector: Collector
    redis_url: str
    signing_key: str
    gateways: list[Gateway] = field(default_factory=list)
    clients: list[openai.AsyncOpenAI] = field(default_factory=list)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    async def make_run(self, purpose: str = "train", wanted: int | None = None, **spec: object) -> None:
        """Enter a run with one episode, and claim its first attempt."""
        values = {"id": RUN, "base_model": BASE, "agent": "a:b", "grader": "a:c", "group_size": 2, **spec}
        assert await self.ledger.runs.create(RunSpec.model_validate(values))
        group = Planned("g", purpose=purpose, version=wanted)
        await accept(self.ledger, RUN, [group])
        await self.ledger.episodes.release(RUN)
        assert await self.ledger.episodes.claim(RUN, EPISODE, "w", 60)

    async def beat(self, *ready: str, id: str = "r0", url: str | None = None) -> None:
        """Announce a replica."""
        status = ReplicaStatus(id=id, url=url or self.engine.url, base_model=BASE, ready=list(ready))
        await self.ledger.replicas.beat(status, 30)

    async def gateway(self, **changes: object) -> Gateway:
        """Start a gateway with changed settings."""
        port = find_port()
        values = {
            "redis_url": self.redis_url,
            "signing_key": self.signing_key,
            "engine_api_key": "engine-key",
            "collector_url": self.collector.url,
            "port": port,
            "replica_wait_s": 3,
            "replica_refresh_s": 0.05,
            "drain_s": 5,
            **changes,
        }
        gateway = Gateway(f"http://127.0.0.1:{port}", GatewaySettings.model_validate(values))
        gateway.task = asyncio.create_task(serve(gateway.settings, self.tokens, gateway.stop))
        self.gateways.append(gateway)
        await listening(port)
        return gateway

    def token(self, attempt: int = 1, ttl_s: float = 60, scope: Scope = Scope.ATTEMPT) -> str:
        return self.tokens.mint(scope, ttl_s, run=RUN, episode=EPISODE, attempt=attempt)

    def client(self, gateway: Gateway, token: str | None = None, **more: object) -> openai.AsyncOpenAI:
        """An agent's client: the real SDK, without its own retries."""
        values: dict = {"base_url": f"{gateway.url}/v1", "api_key": token or self.token(), "max_retries": 0, **more}
        self.clients.append(openai.AsyncOpenAI(**values))
        return self.clients[-1]

    async def counted(self) -> int:
        return (await self.ledger.episodes.get(RUN, EPISODE)).calls


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds, 5 s at most."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def listening(port: int) -> None:
    """Wait until something accepts connections at `port`."""
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
