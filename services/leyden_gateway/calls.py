"""The way of one call, from the agent's request to the reply and its span. This is the gateway's main loop.

token -> role -> fence -> version -> replica -> reply checked -> counted -> span -> answer
"""

import asyncio
import time

import structlog
from aiohttp import web

from leyden_contracts import Transition
from leyden_gateway import metrics, sse
from leyden_gateway.errors import ApiError, as_api_error, response
from leyden_gateway.exporter import Exporter, Place
from leyden_gateway.replicas import Patience
from leyden_gateway.reply import Reply, read_reply
from leyden_gateway.request import Ask, imposed, read_ask
from leyden_gateway.roles import RunCache
from leyden_gateway.upstream import Upstream
from leyden_gateway.versions import Versions
from leyden_ledger import Ledger
from leyden_runtime.failpoints import failpoint
from leyden_runtime.tokens import Claims, Scope, TokenForbidden, Tokens
from leyden_runtime.web import bearer
from leyden_traces import encode_call, span_id, trace_id

log = structlog.get_logger()


class Calls:
    """Handles POST /v1/chat/completions."""

    def __init__(
        self,
        tokens: Tokens,
        ledger: Ledger,
        runs: RunCache,
        versions: Versions,
        upstream: Upstream,
        exporter: Exporter,
        replica_wait_s: float,
    ) -> None:
        self._tokens = tokens
        self._ledger = ledger
        self._runs = runs
        self._versions = versions
        self._upstream = upstream
        self._exporter = exporter
        self._replica_wait_s = replica_wait_s
        self._commits: set[asyncio.Task[None]] = set()

    async def chat(self, request: web.Request) -> web.Response:
        """Answer one chat completion, and measure it."""
        start = time.perf_counter()
        outcome = "disconnected"
        try:
            answer = await self._chat(request)
            outcome = "ok"
            return answer
        except Exception as error:
            refusal = as_api_error(error)
            outcome = refusal.code
            return response(refusal)
        finally:
            metrics.CALLS.labels(outcome).inc()
            metrics.SECONDS.observe(time.perf_counter() - start)

    async def _chat(self, request: web.Request) -> web.Response:
        start_ns = time.time_ns()
        who = attempt_of(request, self._tokens)
        ask = read_ask(await request.read())
        with self._exporter.place() as place:
            transition, reply = await self._answered(who, ask)
            if request.transport is None or request.transport.is_closing():
                raise ApiError(499, "disconnected", "the agent has gone")
            parent = parent_of(request, trace_id(transition.run, transition.episode, transition.attempt))
            # Shielded: an agent that leaves now must not part the count from its span.
            commit = asyncio.create_task(self._commit(transition, start_ns, parent, place))
            self._commits.add(commit)
            commit.add_done_callback(self._commits.discard)
            await asyncio.shield(commit)
            failpoint("gateway.answering")
        return _answer(reply, ask)

    async def _answered(self, who: Claims, ask: Ask) -> tuple[Transition, Reply]:
        """Return the call as it will be recorded, not yet numbered, and the reply."""
        run, episode, attempt = str(who.run), str(who.episode), int(who.attempt or 0)
        roles = await self._runs.get(run)
        role = roles.role(ask.model)
        permit = await self._ledger.calls.begin(run, episode, attempt)
        temperature, fields = imposed(ask, roles.spec, role, permit.purpose)
        patience = Patience(self._replica_wait_s, f"role `{role}` of run `{run}`")
        version = await self._versions.of(who, permit, roles.spec, role, patience)
        replica, body = await self._upstream.call(roles.spec, role, version, episode, fields, patience)
        reply = read_reply(body, ask.logprobs)
        transition = Transition(
            run=run,
            episode=episode,
            attempt=attempt,
            number=0,
            role=role,
            policy_version=version,
            prompt_token_ids=reply.prompt_ids,
            response_token_ids=reply.response_ids,
            response_logprobs=reply.logprobs,
            temperature=temperature,
            finish_reason=reply.finish_reason,
            response_id=reply.id,
            replica=replica,
        )
        return transition, reply

    async def _commit(self, transition: Transition, start_ns: int, parent: bytes, place: Place) -> None:
        """Count the reply, which is about to leave, and hand over its span. Raises Fenced."""
        t = transition
        failpoint("gateway.replied")
        number = await self._ledger.calls.count(t.run, t.episode, t.attempt)
        failpoint("gateway.counted")
        numbered = t.model_copy(update={"number": number})
        trace, span = trace_id(t.run, t.episode, t.attempt), span_id(t.run, t.episode, t.attempt, number)
        place.put(encode_call(numbered, start_ns, time.time_ns(), trace, span, parent))


def attempt_of(request: web.Request, tokens: Tokens) -> Claims:
    """Return the attempt that the request's token speaks for. Raises TokenInvalid, TokenForbidden, ProblemError."""
    claims = tokens.verify(bearer(request), Scope.ATTEMPT)
    if claims.run is None or claims.episode is None or claims.attempt is None:
        raise TokenForbidden("the token names no attempt")
    return claims


def parent_of(request: web.Request, trace: bytes) -> bytes:
    """Return the span id of the agent's own span around this call (W3C `traceparent`), or empty bytes."""
    parts = request.headers.get("traceparent", "").split("-")
    if len(parts) != 4 or parts[1] != trace.hex():
        return b""
    try:
        parent = bytes.fromhex(parts[2])
    except ValueError:
        return b""
    return parent if len(parent) == 8 else b""


def _answer(reply: Reply, ask: Ask) -> web.Response:
    if ask.stream:
        body = sse.events(reply, ask.model, ask.include_usage)
        return web.Response(body=body, headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    return web.Response(body=reply.body(ask.model), content_type="application/json")
