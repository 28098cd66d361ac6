"""Signed tokens with one scope each (HS256 JWT), checked without a round trip.

An agent holds an `attempt` token: it calls the gateway and sends its own spans for one attempt, and nothing else.
"""

import time
from dataclasses import dataclass
from enum import StrEnum

import jwt

CLOCK_SKEW_S = 2 * 3600
"""How far apart the clocks of two machines may be. The ledger fences an attempt's token long before it expires."""


ALL_TENANTS = "*"
"""The tenant of an operator's token: it reaches every tenant's runs."""


class Scope(StrEnum):
    """What a token may do."""

    API = "api"
    """Use the task API."""
    ATTEMPT = "attempt"
    """Call the gateway, and send the agent's own spans, as one attempt."""
    USE = "use"
    """Call the gateway with the promoted versions of one's runs."""
    SPANS = "spans"
    """Send call spans of any run: the gateway."""


class TokenInvalid(Exception):
    """The token is missing, expired, or not signed by us (401)."""


class TokenForbidden(Exception):
    """The token is good, but not for this (403)."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says of its holder."""

    scope: Scope
    tenant: str
    run: str | None = None
    episode: str | None = None
    attempt: int | None = None


class Tokens:
    """Mints and checks tokens with one signing key."""

    def __init__(self, signing_key: str) -> None:
        if len(signing_key) < 32:
            raise ValueError("LEYDEN_SIGNING_KEY must have 32 characters or more: `openssl rand -hex 32` makes one")
        self._key = signing_key

    def mint(
        self,
        scope: Scope,
        ttl_s: float,
        *,
        tenant: str = "default",
        run: str | None = None,
        episode: str | None = None,
        attempt: int | None = None,
    ) -> str:
        """Return a token that expires after `ttl_s` seconds."""
        claims = {"scope": scope.value, "tenant": tenant, "run": run, "episode": episode, "attempt": attempt}
        body = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({**body, "exp": int(time.time() + ttl_s) + 1}, self._key, algorithm="HS256")

    def verify(self, token: str, *scopes: Scope) -> Claims:
        """Return the claims of a good token of one of `scopes`. Raises TokenInvalid, TokenForbidden."""
        try:
            required = {"require": ["exp", "scope"]}
            body = jwt.decode(token, self._key, algorithms=["HS256"], options=required, leeway=CLOCK_SKEW_S)
            claims = Claims(
                Scope(body["scope"]),
                body.get("tenant", ""),
                body.get("run"),
                body.get("episode"),
                body.get("attempt"),
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise TokenInvalid(f"the token is not valid: {error}") from error
        if claims.scope not in scopes:
            raise TokenForbidden(
                f"a token of scope `{claims.scope}` cannot do this; it takes `{'` or `'.join(scopes)}`"
            )
        return claims
