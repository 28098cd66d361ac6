"""Whatever a request holds, a protocol reads it or refuses it with a 400. It never falls over."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_gateway.ask import Ask
from leyden_gateway.dialects import DIALECTS
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Dialect
from support.fuzz import VALID, bodies, wrong


@pytest.mark.parametrize("path", DIALECTS)
@settings(max_examples=300, database=None)
@given(data=st.data())
def test_a_request_is_read_or_refused(path, data):
    check(DIALECTS[path], data.draw(bodies(path)))


@pytest.mark.parametrize("path", DIALECTS)
def test_a_wrong_value_in_any_place_is_read_or_refused(path):
    for body in wrong(path):
        check(DIALECTS[path], body)


def check(dialect: Dialect, body: bytes) -> None:
    try:
        assert isinstance(dialect.read(body), Ask)
    except ApiError as error:
        assert error.status == 400, error.message
        assert isinstance(json.loads(dialect.refuse(error)), dict)


@pytest.mark.parametrize("path", DIALECTS)
def test_a_valid_request_is_read(path):
    """Otherwise the changed requests would test nothing but the first refusal."""
    assert isinstance(DIALECTS[path].read(json.dumps(VALID[path]).encode()), Ask)


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize(
    "deep", [b"[" * 100_000, b'{"messages":' * 100_000, b'{"model": "m", "input": ' + b"[" * 100_000]
)
def test_deep_nesting_is_refused(path, deep):
    with pytest.raises(ApiError) as caught:
        DIALECTS[path].read(deep)
    assert caught.value.status == 400
