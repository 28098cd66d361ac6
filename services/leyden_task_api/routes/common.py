"""What routes share: their parameters, and a bound on their time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute

from leyden_contracts import Problem
from leyden_contracts.ids import ObjectId, RunId
from leyden_runtime.tokens import ALL_TENANTS, Claims
from leyden_task_api.parts import Here
from leyden_task_api.problems import ProblemError


def claims_of(request: Request) -> Claims:
    """Return what the request's token says of its holder."""
    claims: Claims = request.scope["claims"]
    return claims


async def _owned(parts: Here, claims: Annotated[Claims, Depends(claims_of)], run: Annotated[RunId, Path()]) -> str:
    tenant, _ = await parts.owners.of(run)
    if claims.tenant not in (tenant, ALL_TENANTS):
        raise ProblemError(403, f"run {run!r} belongs to another tenant than this token's ({claims.tenant!r})")
    return run


RunPath = Annotated[RunId, Depends(_owned)]
"""A run of the token's tenant. Raises RunNotFound, ProblemError (403)."""
EpisodePath = Annotated[ObjectId, Path()]
Start = Annotated[int, Query(ge=0, description="How many to skip")]
PageSize = Annotated[int, Query(ge=1, le=1000)]

PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Problem}, "5XX": {"model": Problem}}


class BoundedRoute(APIRoute):
    """A route that answers within `answer_within_s`, or with 503: a Redis that hangs must not hang its callers."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with the bound around it."""
        handler = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            async with asyncio.timeout(request.app.state.parts.settings.answer_within_s):
                return await handler(request)

        return bounded
