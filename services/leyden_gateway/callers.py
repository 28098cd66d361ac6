"""Who calls: the attempt that a token speaks for, the role it asks for, and the span that the call belongs to."""

import time
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web

from leyden_runtime.tokens import Claims, Scope, TokenForbidden, Tokens
from leyden_runtime.web import bearer
from leyden_traces import trace_id

ROLE_HEADER = "x-leyden-role"
_KNOWN_S = 20.0
"""How long after its expiry a token may still be taken."""
_MOST_KNOWN = 10_000
_AGENT = "gen_ai.agent.name"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt that calls."""

    run: str
    episode: str
    number: int


class Callers:
    """Reads tokens. An agent sends the same one with each call, so what was verified is kept for a moment."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._known: dict[str, tuple[Claims, float]] = {}

    def claims(self, request: web.Request) -> Claims:
        """Return what the request's token says. Raises TokenInvalid, TokenForbidden, ProblemError (401)."""
        # Anthropic's clients send their key in a header of its own.
        token = request.headers.get("x-api-key") or bearer(request)
        known = self._known.get(token)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        claims = self._tokens.verify(token, Scope.ATTEMPT, Scope.USE)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[token] = (claims, time.monotonic() + _KNOWN_S)
        return claims


def from_anthropic(request: web.Request) -> bool:
    """Return whether one of Anthropic's clients asks, on a path that OpenAI's have too."""
    return "anthropic-version" in request.headers


def attempt_of(claims: Claims) -> Attempt:
    """Return the attempt that the token speaks for. Raises TokenForbidden."""
    if claims.scope is not Scope.ATTEMPT or claims.run is None or claims.episode is None or claims.attempt is None:
        raise TokenForbidden("the token names no attempt")
    return Attempt(claims.run, claims.episode, claims.attempt)


def parent_of(request: web.Request, attempt: Attempt) -> bytes:
    """Return the span id of the agent's own span around this call (W3C `traceparent`), or empty bytes."""
    parts = request.headers.get("traceparent", "").split("-")
    if len(parts) != 4 or parts[1] != trace_id(attempt.run, attempt.episode, attempt.number).hex():
        return b""
    try:
        parent = bytes.fromhex(parts[2])
    except ValueError:
        return b""
    return parent if len(parent) == 8 else b""


def agent_of(request: web.Request) -> str | None:
    """Return the name of the calling agent, if its telemetry sends it along (W3C `baggage`).

    Not by looking its span up: a span arrives when it has ended, and that is after the calls inside it.
    """
    for member in request.headers.get("baggage", "").split(","):
        name, _, value = member.partition(";")[0].partition("=")
        if name.strip() == _AGENT:
            return unquote(value.strip())
    return None
