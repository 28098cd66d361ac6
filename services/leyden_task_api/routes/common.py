"""What routes share: their parameters, and a bound on their time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from fastapi.routing import APIRoute

from leyden_contracts import Problem
from leyden_contracts.ids import ObjectId, RunId

RunPath = Annotated[RunId, Path()]
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
