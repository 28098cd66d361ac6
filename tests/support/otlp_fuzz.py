"""Exports for fuzzing: any bytes, damaged requests, and requests with any type in any field, in protobuf and JSON."""

import json
import struct
from typing import Any

from hypothesis import strategies as st

from leyden_collector import wire
from leyden_traces import names
from support.spans import agent_span, call_span, request, transition

VALID = request(call_span(transition(1)), agent_span(leyden__run="run-a"), service__name="fuzz").SerializeToString()
_NAMES = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)]
_KEYS = st.sampled_from(_NAMES) | st.text(max_size=5)


def _field(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return fields of any number, that hold anything of any wire type."""
    number = st.integers(1, 20)
    return (
        st.builds(wire.delimited, number, inner)
        | st.builds(lambda n, v: bytes((n << 3,)) + v, st.integers(1, 15), st.sampled_from([b"\0", b"\1", b"\xff\x01"]))
        | st.builds(lambda n, v: bytes((n << 3 | 1,)) + struct.pack("<q", v), st.integers(1, 15), st.integers(-5, 5))
        | st.builds(lambda n, v: bytes((n << 3 | 5,)) + struct.pack("<i", v), st.integers(1, 15), st.integers(-5, 5))
    )


_VALUE = st.recursive(
    st.binary(max_size=12) | _KEYS.map(str.encode) | st.sampled_from([b"t" * 16, b"s" * 8, b"\0\0\x80\xbf"]),
    lambda inner: st.lists(_field(inner), max_size=4).map(b"".join),
    max_leaves=6,
)
_ATTRIBUTE = st.builds(
    lambda key, value: wire.delimited(9, wire.delimited(1, key.encode()) + wire.delimited(2, value)),
    _KEYS,
    st.lists(_field(_VALUE), max_size=2).map(b"".join),
)
_SPAN = st.lists(
    st.sampled_from([wire.delimited(1, b"t" * 16), wire.delimited(2, b"s" * 8), wire.delimited(5, b"name")])
    | _ATTRIBUTE
    | _field(_VALUE),
    max_size=8,
).map(b"".join)


def _wrapped(spans: list[bytes], head: bytes) -> bytes:
    return wire.join([wire.Group(head, [wire.Scope(b"", [*spans, call_span(transition(1)).SerializeToString()])])])


@st.composite
def _damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    body = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(body) - 1))
        body[place : place + draw(st.integers(0, 9))] = draw(st.binary(max_size=6))
        body = body or bytearray(b"\0")
    return bytes(body[: draw(st.integers(0, len(body)) | st.just(len(body)))])


PROTOBUF = (
    st.binary(max_size=100)
    | _damaged(VALID)
    | st.builds(_wrapped, st.lists(_SPAN, max_size=3), st.just(b"") | _VALUE)
    | st.integers(1, 20_000).map(lambda depth: _deep(depth))
)
"""Bodies of exports; one of the spans may be sound."""


def _deep(depth: int) -> bytes:
    value = b"\x18\x01"
    for _ in range(min(depth, 300)):
        value = wire.delimited(5, wire.delimited(1, value))
    return _wrapped([wire.delimited(9, wire.delimited(2, value))], b"")


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**63, 2**64, -1, "NaN", "Infinity", "7", "ab", "AA=="])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "value", "stringValue", "intValue", "bytesValue", "arrayValue", "values", "spans"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
_JSON_VALID: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "leyden.run", "value": {"stringValue": "run-a"}}]},
            "schemaUrl": "u",
            "scopeSpans": [
                {
                    "scope": {"name": "n", "version": "1"},
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "parentSpanId": "",
                            "traceState": "",
                            "name": "x",
                            "kind": 2,
                            "startTimeUnixNano": "1",
                            "endTimeUnixNano": 2,
                            "attributes": [{"key": "leyden.call", "value": {"intValue": 1}}],
                            "droppedAttributesCount": 0,
                            "events": [{"name": "e", "timeUnixNano": "1", "attributes": []}],
                            "links": [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}],
                            "status": {"code": 1, "message": "m"},
                            "flags": 1,
                        }
                    ],
                }
            ],
        }
    ]
}


def _places(node: Any) -> list[tuple[Any, Any]]:
    found = []
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        found.append((node, key))
        if isinstance(node[key], dict | list):
            found += _places(node[key])
    return found


@st.composite
def _changed(draw: st.DrawFn) -> bytes:
    message = json.loads(json.dumps(_JSON_VALID))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(message)
        if places:
            node, key = draw(st.sampled_from(places))
            node[key] = draw(_ANY)
    return json.dumps(message).encode()


JSON = (
    st.binary(max_size=40)
    | _ANY.map(lambda value: json.dumps(value).encode())
    | _changed()
    | _damaged(json.dumps(_JSON_VALID).encode())
    | st.sampled_from([b"[" * 5000, b'{"resourceSpans":' * 3000])
)
"""Bodies of exports in JSON."""
