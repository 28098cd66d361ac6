"""Who sends: a token comes with each request, and is verified again only now and then."""

import time
from collections.abc import Callable

from leyden_runtime.tokens import Claims, Scope, Tokens

_KEPT_S = 10.0
"""So much longer a token may be good than it says: nothing beside what clocks are allowed to differ."""
_KEPT = 4096


class Senders:
    """What the tokens of late said; how often a token comes does not matter then."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._clock = clock
        self._known: dict[str, Claims] = {}
        self._began = clock()

    def claims(self, token: str) -> Claims:
        """Return what a good token says. Raises TokenInvalid, TokenForbidden."""
        if self._clock() - self._began >= _KEPT_S or len(self._known) >= _KEPT:
            self._known, self._began = {}, self._clock()
        claims = self._known.get(token)
        if claims is None:
            claims = self._known[token] = self._tokens.verify(token, Scope.SPANS, Scope.ATTEMPT)
        return claims
