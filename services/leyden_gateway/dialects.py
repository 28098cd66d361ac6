"""Which path speaks which protocol."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from leyden_gateway.errors import as_api_error, response
from leyden_gateway.protocols.base import Dialect
from leyden_gateway.protocols.chat import Chat
from leyden_gateway.protocols.completions import Completions
from leyden_gateway.protocols.responses import Responses

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CHAT = Chat()
DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": Completions(),
    "/v1/responses": Responses(),
}
"""The paths that generate something."""
_PREFIXES: dict[str, Dialect] = {"/v1/": _CHAT}
"""Who words the errors of all other paths."""


@web.middleware
async def own_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in the words of the protocol whose path it is."""
    dialect = next((one for prefix, one in _PREFIXES.items() if request.path.startswith(prefix)), None)
    if dialect is None:
        return await handler(request)
    try:
        return await handler(request)
    except Exception as error:
        refusal = as_api_error(error)
        return response(refusal, dialect.refuse(refusal))
