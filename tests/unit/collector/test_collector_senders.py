"""A token is verified once in a while, and no bad one is taken for a good one."""

import pytest

from leyden_collector.senders import Senders
from leyden_runtime.tokens import Claims, Scope, TokenForbidden, TokenInvalid, Tokens


class Counting(Tokens):
    """Says how often it was asked."""

    asked = 0

    def verify(self, token: str, *scopes: Scope) -> Claims:
        self.asked += 1
        return super().verify(token, *scopes)


def test_a_token_is_verified_again_after_some_seconds(signing_key: str) -> None:
    now = [0.0]
    tokens = Counting(signing_key)
    senders = Senders(tokens, lambda: now[0])
    token, other = (tokens.mint(Scope.SPANS, 60, tenant=tenant) for tenant in ("a", "b"))
    assert [senders.claims(one).tenant for one in (token, other, token, token)] == ["a", "b", "a", "a"]
    assert tokens.asked == 2
    now[0] = 60.0
    assert senders.claims(token).tenant == "a"
    assert tokens.asked == 3


def test_a_bad_token_is_refused_each_time(signing_key: str) -> None:
    tokens = Tokens(signing_key)
    senders = Senders(tokens)
    for _ in range(2):
        with pytest.raises(TokenInvalid):
            senders.claims("rubbish")
        with pytest.raises(TokenForbidden):
            senders.claims(tokens.mint(Scope.API, 60))
