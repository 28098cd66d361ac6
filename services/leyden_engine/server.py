"""The HTTP side: vLLM's routes, as far as Leyden uses them."""

import asyncio
import hmac
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import structlog
from aiohttp import web

from leyden_engine import metrics
from leyden_engine.adapters import Adapters
from leyden_engine.call_log import CallLog
from leyden_engine.engine import Engine, Progress
from leyden_engine.errors import EngineError, Handler, openai_errors
from leyden_engine.job import Job
from leyden_engine.network import ModelUnusable, load_network
from leyden_engine.protocol import ChatRequest, CompletionRequest, LoadAdapter, TokenizeRequest, UnloadAdapter, read
from leyden_engine.replies import chat_reply, completion_reply
from leyden_engine.scheduler import Scheduler
from leyden_engine.settings import EngineSettings
from leyden_engine.streams import ReplyStream
from leyden_engine.text import load_text
from leyden_runtime.web import make_app, run_app

log = structlog.get_logger()
_OPEN = {"/health", "/healthz", "/metrics"}
Generate = Callable[[Callable[[], bool], Progress], Awaitable[Job]]
BOOT_HEADER = "X-Leyden-Boot"
"""On every reply: changes when the engine restarts, and so has forgotten its adapters."""


class Server:
    """Answers requests."""

    def __init__(self, settings: EngineSettings) -> None:
        """Load the model and start its thread. Raises ModelUnusable."""
        network = load_network(
            settings.model,
            settings.max_batch + settings.kept_sequences,
            settings.device,
            settings.dtype,
            settings.threads,
        )
        self._text = load_text(settings.model)
        self._settings = settings
        self._max_length = settings.max_model_len or network.max_length
        if self._max_length > network.max_length:
            raise ModelUnusable(f"was made for {network.max_length} tokens: lower LEYDEN_ENGINE_MAX_MODEL_LEN")
        self._adapters = Adapters(network, settings.served_name, settings.max_adapters)
        self._scheduler = Scheduler(
            network, self._text, settings.max_batch, settings.kept_sequences, settings.max_waiting
        )
        self._engine = Engine(self._scheduler, self._text, self._adapters, network.vocabulary, self._max_length)
        self._call_log = CallLog(settings.call_log) if settings.call_log else None
        self._key = settings.engine_api_key.get_secret_value().encode()
        self._boot = secrets.token_hex(8)
        self._started = int(time.time())

    async def serve(self, stop: asyncio.Event) -> None:
        """Answer requests until `stop` is set. Raises RuntimeError if the model's thread ends by itself."""
        self._scheduler.start()
        watch = asyncio.create_task(self._watch(stop))
        try:
            await run_app(self._app(), self._settings.host, self._settings.port, stop)
        finally:
            watch.cancel()
            died = not self._scheduler.alive
            await asyncio.to_thread(self._scheduler.stop)
            if self._call_log:
                self._call_log.close()
        if died:
            raise RuntimeError("the model's thread has ended")

    async def _watch(self, stop: asyncio.Event) -> None:
        await asyncio.to_thread(self._scheduler.join)
        stop.set()

    def _app(self) -> web.Application:
        app = make_app(self._settings.max_body_bytes)
        app.middlewares.extend([self._counted, openai_errors, self._authorized])
        app.on_response_prepare.append(self._sign)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._complete),
                web.post("/tokenize", self._tokenize),
                web.post("/v1/load_lora_adapter", self._load),
                web.post("/v1/unload_lora_adapter", self._unload),
            ]
        )
        return app

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        resource = request.match_info.route.resource
        metrics.REQUESTS.labels(resource.canonical if resource else "unknown", response.status).inc()
        return response

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN:
            kind, _, key = request.headers.get("Authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self._key):
                raise EngineError(401, "send `Authorization: Bearer <LEYDEN_ENGINE_API_KEY>`")
        return await handler(request)

    async def _sign(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers[BOOT_HEADER] = self._boot

    async def _health(self, _: web.Request) -> web.Response:
        if not self._scheduler.alive:
            raise EngineError(503, "the model's thread has ended")
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": f"leyden-engine {version('leyden')}", "boot_id": self._boot})

    async def _models(self, _: web.Request) -> web.Response:
        base = self._card(self._settings.served_name, str(self._settings.model), None)
        loaded = [self._card(one.name, one.path, self._settings.served_name) for one in self._adapters.all()]
        return web.json_response({"object": "list", "data": [base, *loaded]})

    def _card(self, name: str, path: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "leyden",
            "root": path,
            "parent": parent,
            "max_model_len": self._max_length,
        }

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = read(ChatRequest, await request.read())
        response_id = f"chatcmpl-{uuid.uuid4().hex}"
        if body.stream:
            return await self._streamed(request, body, response_id, partial(self._engine.chat, body))
        job = await self._engine.chat(body, lambda: _gone(request))
        self._log_call(response_id, body.model, job)
        return web.json_response(chat_reply(response_id, body, job, self._text))

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = read(CompletionRequest, await request.read())
        response_id = f"cmpl-{uuid.uuid4().hex}"
        if body.stream:
            return await self._streamed(request, body, response_id, partial(self._engine.complete, body))
        job = await self._engine.complete(body, lambda: _gone(request))
        self._log_call(response_id, body.model, job)
        return web.json_response(completion_reply(response_id, body, job, self._text))

    async def _streamed(
        self, request: web.Request, body: ChatRequest | CompletionRequest, response_id: str, generate: Generate
    ) -> web.StreamResponse:
        stream = ReplyStream(request, body, response_id, self._text)
        try:
            job = await generate(lambda: _gone(request), stream.progress)
        except EngineError as error:
            return await stream.fail(error)
        self._log_call(response_id, body.model, job)
        return await stream.finish(job)

    def _log_call(self, response_id: str, model: str, job: Job) -> None:
        if self._call_log:
            self._call_log.write(response_id, model, job)

    async def _tokenize(self, request: web.Request) -> web.Response:
        tokens = await self._engine.tokenize(read(TokenizeRequest, await request.read()))
        found = {"count": len(tokens), "max_model_len": self._max_length, "tokens": tokens, "token_strs": None}
        return web.json_response(found)

    async def _load(self, request: web.Request) -> web.Response:
        body = read(LoadAdapter, await request.read())
        await self._adapters.load(body.lora_name, body.lora_path)
        metrics.ADAPTERS.set(len(self._adapters))
        log.info("adapter_loaded", name=body.lora_name, path=body.lora_path)
        return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def _unload(self, request: web.Request) -> web.Response:
        body = read(UnloadAdapter, await request.read())
        self._adapters.unload(body.lora_name)
        metrics.ADAPTERS.set(len(self._adapters))
        log.info("adapter_unloaded", name=body.lora_name)
        return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def _gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
