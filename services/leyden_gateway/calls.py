"""The way of one request, from the agent to the reply and its span. This is the gateway's main loop.

token -> request read -> plan (role, fence, version, sampling) -> replica -> reply checked -> counted -> span -> answer
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from aiohttp import web

from leyden_gateway import metrics
from leyden_gateway.aliases import Aliases
from leyden_gateway.answers import REQUEST_ID, StreamFailed, pass_on, whole
from leyden_gateway.ask import Ask
from leyden_gateway.callers import ROLE_HEADER, Callers, agent_of, attempt_of, parent_of
from leyden_gateway.errors import ApiError, as_api_error, response
from leyden_gateway.exporter import Exporter
from leyden_gateway.limits import Limits
from leyden_gateway.outside import Providers
from leyden_gateway.plan import Plan, Planner
from leyden_gateway.protocols.base import Dialect
from leyden_gateway.recording import Record, Recorder, Unrecorded
from leyden_gateway.reply import Reply
from leyden_gateway.upstream import Upstream
from leyden_runtime.failpoints import failpoint
from leyden_runtime.tokens import Scope

log = structlog.get_logger()
Answered = tuple[str, Reply]
"""Which replica answered, and what."""


class Calls:
    """Answers the requests that generate something."""

    def __init__(
        self,
        callers: Callers,
        planner: Planner,
        aliases: Aliases,
        upstream: Upstream,
        providers: Providers,
        exporter: Exporter,
        recorder: Recorder,
        limits: Limits,
    ) -> None:
        self._callers = callers
        self._planner = planner
        self._aliases = aliases
        self._upstream = upstream
        self._providers = providers
        self._exporter = exporter
        self._recorder = recorder
        self._limits = limits

    async def answer(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        """Answer one request in `dialect`, and measure it."""
        start, request_id = time.perf_counter(), secrets.token_hex(16)
        outcome = "disconnected"
        try:
            answer = await self._answer(request, dialect, request_id)
            outcome = "ok"
        except StreamFailed as failure:
            outcome = failure.error.code
            answer = failure.response
        except Exception as error:
            refusal = as_api_error(error)
            outcome = refusal.code
            log.info("call_refused", request=request_id, status=refusal.status, code=refusal.code, why=refusal.message)
            answer = response(refusal, dialect.refuse(refusal))
            answer.headers[REQUEST_ID] = request_id
        finally:
            metrics.CALLS.labels(outcome).inc()
            metrics.SECONDS.observe(time.perf_counter() - start)
        return answer

    async def _answer(self, request: web.Request, dialect: Dialect, request_id: str) -> web.StreamResponse:
        start_ns = time.time_ns()
        claims = self._callers.claims(request)
        if claims.scope is Scope.USE:
            ask = dialect.read(await request.read())
            plan = await self._aliases.plan(claims, ask, request_id)
            with self._limits.call(str(plan.spec.id)):
                return await self._serve(request, dialect, ask, plan, Unrecorded, request_id)
        attempt = attempt_of(claims)
        ask = dialect.read(await request.read())
        parent = parent_of(request, attempt)
        with self._limits.call(attempt.run), self._exporter.place(ask.samples) as place:
            plan = await self._planner.plan(attempt, ask, request.headers.get(ROLE_HEADER), agent_of(request))
            record = partial(self._recorder.call, attempt, plan, start_ns, parent, place)
            return await self._serve(request, dialect, ask, plan, record, request_id)

    async def _serve(
        self,
        request: web.Request,
        dialect: Dialect,
        ask: Ask,
        plan: Plan,
        record: Callable[[], Record | Unrecorded],
        request_id: str,
    ) -> web.StreamResponse:
        if ask.live and not plan.outside:
            async with self._upstream.stream(plan) as stream:
                return await pass_on(request, dialect, ask, stream, record(), request_id)
        answered = await self._replies(plan, ask.samples)
        if request.transport is None or request.transport.is_closing():
            raise ApiError(499, "disconnected", "the agent has gone")
        await self._recorder.unparted(_commit(record(), answered))
        failpoint("gateway.answering")
        return whole(dialect, ask, [reply for _, reply in answered], request_id)

    async def _replies(self, plan: Plan, samples: int) -> list[Answered]:
        """Return as many replies as are wanted. The first that fails ends the others."""
        call = self._providers.call if plan.outside else self._upstream.call
        if samples == 1:
            return [await call(plan)]
        tasks = [asyncio.ensure_future(call(plan.sample(index))) for index in range(samples)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


async def _commit(record: Record | Unrecorded, answered: Sequence[Answered]) -> None:
    """Count replies that are about to leave, all or none, and hand over their spans. Raises Fenced, TooManyCalls."""
    await record.count(len(answered))
    for sample, (replica, reply) in enumerate(answered):
        record.close(replica, reply, sample)
