"""The lists of models, in each vendor's words: the names that the token's run knows, or that a user's token may use."""

from collections.abc import Sequence
from importlib.metadata import version

import msgspec
from aiohttp import web

from leyden_contracts import RunSpec
from leyden_gateway.aliases import Aliases
from leyden_gateway.callers import Callers, attempt_of, from_anthropic
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import messages_models, ollama_models
from leyden_gateway.roles import RunCache
from leyden_runtime.tokens import Scope


class Models:
    """Handles GET /v1/models, for OpenAI's and Anthropic's clients, and what Ollama's ask of models."""

    def __init__(self, callers: Callers, runs: RunCache, aliases: Aliases) -> None:
        self._callers = callers
        self._runs = runs
        self._aliases = aliases

    async def list(self, request: web.Request) -> web.Response:
        """List the model names."""
        names, owner = await self._names(request)
        if from_anthropic(request):
            return _json(messages_models.page(names))
        return _json({"object": "list", "data": [_model(name, owner) for name in names]})

    async def get(self, request: web.Request) -> web.Response:
        """Return one model, if the token may use it."""
        name = request.match_info["name"]
        spec, _ = await self._find(request, name)
        return _json(messages_models.model(name) if from_anthropic(request) else _model(name, str(spec.id)))

    async def tags(self, request: web.Request) -> web.Response:
        """List the model names for Ollama's clients."""
        names, _ = await self._names(request)
        return _json(ollama_models.tags(names))

    async def show(self, request: web.Request) -> web.Response:
        """Describe one model to Ollama's clients, if the token may use it."""
        return _json(ollama_models.show(*await self._find(request, ollama_models.asked(await request.read()))))

    async def version(self, _: web.Request) -> web.Response:
        """Return Leyden's version, as Ollama's clients ask for Ollama's."""
        return _json({"version": version("leyden")})

    async def unsupported(self, request: web.Request) -> web.Response:
        """Refuse what Ollama can do to models, and embeddings."""
        self._callers.claims(request)
        raise ApiError(501, "not_supported", f"`{request.path}` is not there: Leyden alone makes and keeps its models")

    async def _names(self, request: web.Request) -> tuple[Sequence[str], str]:
        """Return the names that the token may use, and who owns them."""
        claims = self._callers.claims(request)
        if claims.scope is Scope.USE:
            return await self._aliases.names(claims), "leyden"
        run = attempt_of(claims).run
        return sorted((await self._runs.get(run)).by_model), run

    async def _find(self, request: web.Request, name: str) -> tuple[RunSpec, str]:
        """Return the run and the role that a name stands for. Raises ApiError (404)."""
        claims = self._callers.claims(request)
        if claims.scope is Scope.USE:
            spec, role, _ = await self._aliases.resolve(claims, name)
            return spec, role
        roles = await self._runs.get(attempt_of(claims).run)
        return roles.spec, roles.role(name)


def _model(name: str, owner: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
