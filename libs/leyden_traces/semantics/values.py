"""Reads attributes of spans without trust: any type may stand anywhere, text is cut, and nothing raises."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

MAX_TEXT = 4096
"""Bytes of a tool's input or output, or of an error."""
MAX_NAME = 200


class Attributes:
    """A span's attributes (or an event's) by key; of one that is given twice, the last."""

    def __init__(self, attributes: Iterable[KeyValue]) -> None:
        self._values = {attribute.key: attribute.value for attribute in attributes}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys."""
        return iter(self._values)

    def get(self, key: str) -> Any:
        """Return the value as plain Python, or None."""
        found = self._values.get(key)
        return None if found is None else plain(found)

    def text(self, *keys: str) -> str:
        """Return the first of `keys` that says something as text: what is no text as JSON."""
        for key in keys:
            if written := as_text(self.get(key)):
                return written
        return ""

    def name(self, *keys: str) -> str:
        """Return the first of `keys` that is text, cut as a name."""
        for key in keys:
            value = self.get(key)
            if isinstance(value, str) and value:
                return cut(value, MAX_NAME)
        return ""

    def count(self, *keys: str) -> int:
        """Return the first of `keys` that is a whole number from 1 on, or 0."""
        for key in keys:
            value = self.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0

    def data(self, key: str) -> Any:
        """Return the value; JSON in text is read."""
        return from_json(self.get(key))


def plain(value: AnyValue) -> Any:
    """Return an attribute's value as plain Python that JSON can hold."""
    kind = value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "array_value":
            return [plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {item.key: plain(item.value) for item in value.kvlist_value.values}
        case "bytes_value":
            return value.bytes_value.hex()
        case "double_value":
            return _number(value.double_value)
    return getattr(value, kind)


def from_json(value: Any) -> Any:
    """Return what JSON text holds; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value, parse_float=lambda text: _number(float(text)), parse_constant=str)
    except (ValueError, RecursionError):
        return value


def as_text(value: Any) -> str:
    """Return text as it is, nothing as none, and all else as JSON."""
    if value is None:
        return ""
    return clean(value) if isinstance(value, str) else to_json(value)


def to_json(value: Any) -> str:
    """Return the value as JSON, the same for the same value."""
    try:
        return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except RecursionError:
        return '"nested too deep"'


def clean(text: str) -> str:
    """Return text without lone surrogates, which JSON can name and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """Return the beginning of `text`, at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= limit else data[:limit].decode(errors="ignore")


def _number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
