"""The lists of models: the names that the token's run knows."""

import msgspec
from aiohttp import web

from leyden_gateway.aliases import Aliases
from leyden_gateway.callers import Callers, attempt_of
from leyden_gateway.roles import RunCache
from leyden_runtime.tokens import Scope


class Models:
    """Handles GET /v1/models."""

    def __init__(self, callers: Callers, runs: RunCache, aliases: Aliases) -> None:
        self._callers = callers
        self._runs = runs
        self._aliases = aliases

    async def list(self, request: web.Request) -> web.Response:
        """List the model names."""
        claims = self._callers.claims(request)
        if claims.scope is Scope.USE:
            names = await self._aliases.names(claims)
            return _json({"object": "list", "data": [_model(name, "leyden") for name in names]})
        run = attempt_of(claims).run
        names = sorted((await self._runs.get(run)).by_model)
        return _json({"object": "list", "data": [_model(name, run) for name in names]})

    async def get(self, request: web.Request) -> web.Response:
        """Return one model, if the token may use it."""
        claims, name = self._callers.claims(request), request.match_info["name"]
        if claims.scope is Scope.USE:
            spec, _ = await self._aliases.resolve(claims, name)
            return _json(_model(name, str(spec.id)))
        run = attempt_of(claims).run
        (await self._runs.get(run)).role(name)
        return _json(_model(name, run))


def _model(name: str, run: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": run}


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
