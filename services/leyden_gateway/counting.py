"""Counts the tokens of a prompt, for clients that ask before they call (`POST /v1/messages/count_tokens`).

It is no call: nothing is counted or recorded. But only an attempt that may call may ask.
"""

from dataclasses import replace

import msgspec
from aiohttp import web

from leyden_gateway.aliases import Aliases
from leyden_gateway.ask import Ask
from leyden_gateway.callers import ROLE_HEADER, Callers, agent_of, attempt_of
from leyden_gateway.dialects import MESSAGES
from leyden_gateway.errors import ApiError
from leyden_gateway.plan import Plan, Planner
from leyden_gateway.upstream import Upstream
from leyden_runtime.tokens import Claims, Scope


class Counting:
    """Handles the request."""

    def __init__(self, callers: Callers, planner: Planner, aliases: Aliases, upstream: Upstream) -> None:
        self._callers = callers
        self._planner = planner
        self._aliases = aliases
        self._upstream = upstream

    async def answer(self, request: web.Request) -> web.Response:
        """Return `{"input_tokens"}`, exactly as a replica of the run's base model counts them."""
        claims = self._callers.claims(request)
        ask = MESSAGES.read_to_count(await request.read())
        plan = await self._plan(request, claims, ask)
        if plan.outside:
            raise ApiError(400, "not_supported", f"`{ask.model}` is an outside provider's: its tokens are not known")
        count = await self._upstream.count_tokens(plan)
        return web.Response(body=msgspec.json.encode({"input_tokens": count}), content_type="application/json")

    async def _plan(self, request: web.Request, claims: Claims, ask: Ask) -> Plan:
        if claims.scope is Scope.USE:
            return replace(await self._aliases.plan(claims, ask, ""), version=0)
        return await self._planner.plan_prompt(
            attempt_of(claims), ask, request.headers.get(ROLE_HEADER), agent_of(request)
        )
