"""Which path speaks which protocol."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from leyden_gateway.callers import from_anthropic
from leyden_gateway.errors import as_api_error, response
from leyden_gateway.protocols.base import Dialect
from leyden_gateway.protocols.chat import Chat
from leyden_gateway.protocols.completions import Completions
from leyden_gateway.protocols.messages import Messages
from leyden_gateway.protocols.ollama import OllamaChat, OllamaGenerate
from leyden_gateway.protocols.responses import Responses

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CHAT = Chat()
MESSAGES = Messages()
_OLLAMA = OllamaChat()
DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": Completions(),
    "/v1/responses": Responses(),
    "/v1/messages": MESSAGES,
    "/api/chat": _OLLAMA,
    "/api/generate": OllamaGenerate(),
}
"""The paths that generate something."""
_PREFIXES: dict[str, Dialect] = {"/v1/messages": MESSAGES, "/v1/": _CHAT, "/api/": _OLLAMA}
"""Who words the errors of all other paths: the first that fits."""


@web.middleware
async def own_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in the words of the protocol whose path it is."""
    dialect = _dialect_of(request)
    if dialect is None:
        return await handler(request)
    try:
        return await handler(request)
    except Exception as error:
        refusal = as_api_error(error)
        return response(refusal, dialect.refuse(refusal))


def _dialect_of(request: web.Request) -> Dialect | None:
    dialect = next((one for prefix, one in _PREFIXES.items() if request.path.startswith(prefix)), None)
    return MESSAGES if dialect is _CHAT and from_anthropic(request) else dialect
