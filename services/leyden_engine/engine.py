"""From a request to a finished job, on the asyncio loop; the model runs on the scheduler's thread."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from leyden_engine.adapters import Adapters
from leyden_engine.errors import EngineError
from leyden_engine.job import Job, Sampling
from leyden_engine.protocol import ChatRequest, CompletionRequest, TokenizeRequest, plain_messages
from leyden_engine.sampling import GREEDY_BELOW
from leyden_engine.scheduler import Busy, Cancelled, Scheduler
from leyden_engine.text import Text

_POLL_S = 0.2
"""How often a waiting request looks whether its client is still there."""
_STREAM_S = 0.02
"""How often a streamed reply is looked at for new tokens."""
_COMPLETION_TOKENS = 16
"""What a text completion gets if it does not say; a chat completion gets all that fits."""

Progress = Callable[[Job], Awaitable[None]]


class Engine:
    """Turns requests into jobs, and waits for them."""

    def __init__(self, scheduler: Scheduler, text: Text, adapters: Adapters, vocabulary: int, max_length: int) -> None:
        self._scheduler = scheduler
        self._text = text
        self._adapters = adapters
        self._vocabulary = vocabulary
        self._max_length = max_length
        # One thread: a tokenizer encodes for one caller at a time.
        self._encoder = ThreadPoolExecutor(1, "encode")

    async def chat(self, request: ChatRequest, gone: Callable[[], bool], progress: Progress | None = None) -> Job:
        """Return the finished job of a chat completion; `gone`, `progress` and the errors are those of `_finish`."""
        adapter = self._adapters.find(request.model)
        tools = None if request.tool_choice == "none" else request.tools
        prompt = await self._encode(lambda: self._text.render(plain_messages(request.messages), request.tools))
        limit = request.max_completion_tokens or request.max_tokens
        sampling = self._sampling(request, limit, len(prompt), request.top_logprobs or 0)
        job = Job(prompt, adapter, sampling, prompt_logprobs=request.prompt_logprobs, keep_special=bool(tools))
        return await self._finish(job, gone, progress)

    async def complete(
        self, request: CompletionRequest, gone: Callable[[], bool], progress: Progress | None = None
    ) -> Job:
        """Return the finished job of a text completion; `gone`, `progress` and the errors are those of `_finish`."""
        adapter = self._adapters.find(request.model)
        prompt = request.prompt
        if isinstance(prompt, str):
            text = prompt
            prompt = await self._encode(lambda: self._text.encode(text, add_special=request.add_special_tokens))
        limit = request.max_tokens or _COMPLETION_TOKENS
        sampling = self._sampling(request, limit, len(prompt), request.logprobs or 0)
        return await self._finish(
            Job(prompt, adapter, sampling, prompt_logprobs=request.prompt_logprobs), gone, progress
        )

    async def tokenize(self, request: TokenizeRequest) -> list[int]:
        """Return the token ids of a prompt that is not to be run. Raises EngineError (400, 404)."""
        self._adapters.find(request.model)
        messages, text = request.messages, request.prompt or ""
        if messages is None:
            return await self._encode(lambda: self._text.encode(text, add_special=request.add_special_tokens))
        begin = request.add_generation_prompt
        plain = plain_messages(messages)
        return await self._encode(lambda: self._text.render(plain, request.tools, add_generation_prompt=begin))

    async def _encode(self, work: Callable[[], list[int]]) -> list[int]:
        prompt = await asyncio.get_running_loop().run_in_executor(self._encoder, work)
        return prompt

    def _sampling(
        self, request: ChatRequest | CompletionRequest, limit: int | None, prompt: int, top_logprobs: int
    ) -> Sampling:
        room = self._max_length - prompt
        if room < 1:
            message = f"This model's maximum context length is {self._max_length} tokens, but the prompt has {prompt}"
            raise EngineError(
                400, f"{message}: shorten it", "messages" if isinstance(request, ChatRequest) else "prompt"
            )
        temperature = 1.0 if request.temperature is None else request.temperature
        ends = frozenset() if request.ignore_eos else self._text.end_ids
        return Sampling(
            temperature=0.0 if temperature < GREEDY_BELOW else temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            # As vLLM does: a reply ends where the context does, whatever was asked for.
            max_tokens=min(limit or room, room),
            seed=request.seed,
            stop=request.stops,
            stop_ids=ends.union(request.stop_token_ids or ()),
            top_logprobs=top_logprobs,
        )

    async def _finish(self, job: Job, gone: Callable[[], bool], progress: Progress | None) -> Job:
        """Run `job` to its end, or give it up when `gone()` says that its client has left.

        `progress` is called now and then with the job, which the model thread still adds to.

        Raises:
            EngineError: 400 the prompt cannot be run, 499 the client left, 500 the model failed, 503 try later.
        """
        if not job.prompt or max(job.prompt) >= self._vocabulary:
            raise EngineError(400, f"a prompt has at least one token, each below {self._vocabulary}", "prompt")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        job.done = lambda: _resolve_from_thread(loop, ended)
        try:
            self._scheduler.submit(job)
            while not (await asyncio.wait({ended}, timeout=_STREAM_S if progress else _POLL_S))[0]:
                if progress:
                    await progress(job)
                if gone():
                    raise EngineError(499, "the client left")
                if not self._scheduler.alive:
                    raise EngineError(503, "the engine is stopping")
        except Busy as error:
            raise EngineError(503, "too many requests wait already: try again later") from error
        finally:
            job.cancelled = True
        if isinstance(job.error, Cancelled):
            raise EngineError(503, "the engine is stopping") from job.error
        if job.error:
            raise EngineError(500, f"the model failed: {type(job.error).__name__}; see the engine's log") from job.error
        return job


def _resolve_from_thread(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[None]") -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
        loop.call_soon_threadsafe(resolve)
