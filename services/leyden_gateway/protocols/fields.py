"""Reads the fields of a request one by one: what the gateway does not need stays the bytes that the agent sent."""

from collections.abc import Mapping
from typing import Any

import msgspec

from leyden_gateway.ask import refused

Fields = dict[str, msgspec.Raw]
Decoders = Mapping[str, msgspec.json.Decoder[Any]]

_OBJECT = msgspec.json.Decoder(Fields)
_NULL = msgspec.Raw(b"null")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_object(body: bytes) -> Fields:
    """Return the fields of a JSON object. Raises ApiError (400)."""
    try:
        body.decode()  # Fields that stay as sent are not looked into, and so not checked otherwise.
        return _OBJECT.decode(body)
    except _UNREADABLE as error:
        raise refused(f"the body must be one JSON object: {error}") from error


def read_fields(fields: Fields, decoders: Decoders, required: tuple[str, ...]) -> dict[str, Any]:
    """Decode those of `fields` that have a decoder. Raises ApiError (400)."""
    missing = [name for name in required if name not in fields]
    if missing:
        raise refused(f"`{'` and `'.join(missing)}` must be given")
    return {name: _read(name, decoder, fields[name]) for name, decoder in decoders.items() if name in fields}


def is_given(fields: Fields, name: str) -> bool:
    """Whether a field is there and not null."""
    return fields.get(name, _NULL) != _NULL


def smallest(*asked: int | None) -> int | None:
    """Return the smallest of the limits that are given."""
    return min((number for number in asked if number is not None), default=None)


def _read(name: str, decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw) -> Any:
    try:
        return decoder.decode(raw)
    except _UNREADABLE as error:
        raise refused(f"`{name}`: {error}") from error
