"""The lists of models, in each vendor's words: the names that the token's run knows."""

from importlib.metadata import version

import msgspec
from aiohttp import web

from leyden_gateway.callers import attempt_of, claims_of, from_anthropic
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols import messages_models, ollama_models
from leyden_gateway.roles import Roles, RunCache
from leyden_runtime.tokens import Tokens


class Models:
    """Handles GET /v1/models, for OpenAI's and Anthropic's clients, and what Ollama's ask of models."""

    def __init__(self, tokens: Tokens, runs: RunCache) -> None:
        self._tokens = tokens
        self._runs = runs

    async def list(self, request: web.Request) -> web.Response:
        """List the model names."""
        roles = await self._roles(request)
        names = sorted(roles.by_model)
        if from_anthropic(request):
            return _json(messages_models.page(names))
        return _json({"object": "list", "data": [_model(name, str(roles.spec.id)) for name in names]})

    async def get(self, request: web.Request) -> web.Response:
        """Return one model, if the run has it."""
        name, roles = request.match_info["name"], await self._roles(request)
        roles.role(name)
        return _json(messages_models.model(name) if from_anthropic(request) else _model(name, str(roles.spec.id)))

    async def tags(self, request: web.Request) -> web.Response:
        """List the model names for Ollama's clients."""
        return _json(ollama_models.tags(sorted((await self._roles(request)).by_model)))

    async def show(self, request: web.Request) -> web.Response:
        """Describe one model to Ollama's clients, if the run has it."""
        name, roles = ollama_models.asked(await request.read()), await self._roles(request)
        return _json(ollama_models.show(roles.spec, roles.role(name)))

    async def version(self, _: web.Request) -> web.Response:
        """Return Leyden's version, as Ollama's clients ask for Ollama's."""
        return _json({"version": version("leyden")})

    async def unsupported(self, request: web.Request) -> web.Response:
        """Refuse what Ollama can do to models, and embeddings."""
        await self._roles(request)
        raise ApiError(501, "not_supported", f"`{request.path}` is not there: a run's models are made by Leyden alone")

    async def _roles(self, request: web.Request) -> Roles:
        return await self._runs.get(attempt_of(claims_of(request, self._tokens)).run)


def _model(name: str, run: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": run}


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
