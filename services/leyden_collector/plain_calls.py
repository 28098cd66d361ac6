"""The short way to a gateway's calls: without parsing their spans as a whole, where nothing about them is unusual.

Whatever is unusual goes the long way, perhaps to be refused there; so both ways decide the same.
"""

from collections.abc import Sequence

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_collector import wire
from leyden_collector.limits import SMALL, SpanLimits
from leyden_contracts import Transition
from leyden_traces import PLAIN_KEYS, all_possible, decode_plain, text_keys

_NAME_BYTES = 100
"""A name that is read this way is shorter."""
_ATTRIBUTE = Span.ATTRIBUTES_FIELD_NUMBER << 3 | 2
"""With what an attribute begins."""


def plain_calls(spans: Sequence[bytes], limits: SpanLimits) -> list[Transition | None]:
    """Return the call that each serialized span is; None for those that must go the long way."""
    found = [_plain_call(span, limits) for span in spans]
    calls = [call for call in found if call]
    ids = [packed for call in calls for packed in (call.prompt_token_ids, call.response_token_ids)]
    if all_possible(ids, [call.response_logprobs for call in calls]):
        return found
    return [None] * len(spans)


def _plain_call(data: bytes, limits: SpanLimits) -> Transition | None:
    if len(data) > limits.value_bytes or limits.name_bytes < _NAME_BYTES or limits.parts < len(PLAIN_KEYS):
        return None
    plain = decode_plain(data)
    if plain is None or (plain.end < len(data) and not _harmless(data, plain.end, limits)):
        return None
    return plain.call


def _harmless(span: bytes, at: int, limits: SpanLimits) -> bool:
    """Whether the rest of a call's span is more attributes, simple ones within limits, and none of them the call's."""
    room = limits.parts - len(PLAIN_KEYS)
    keys = text_keys(span, at, room) or _simple_keys(span[at:])
    return (
        keys is not None
        and len(set(keys)) == len(keys) <= room
        and PLAIN_KEYS.isdisjoint(keys)
        and max(map(len, keys)) <= limits.name_bytes
    )


def _simple_keys(rest: bytes) -> list[str] | None:
    """Return the keys of serialized attributes; None if there is anything else, or if one holds others."""
    try:
        if len(rest) > SMALL or not _only_attributes(rest):
            return None
        attributes = Span.FromString(rest).attributes
    except (wire.NotOtlp, IndexError, DecodeError):
        return None
    values = [attribute.value for attribute in attributes]
    # How deep messages may nest is asked the long way.
    if any(value.HasField("array_value") or value.HasField("kvlist_value") for value in values):
        return None
    return [attribute.key for attribute in attributes]


def _only_attributes(fields: bytes) -> bool:
    at = 0
    while at < len(fields):
        if fields[at] != _ATTRIBUTE:
            return False
        size, at = wire.varint(fields, at + 1)
        at += size
    return True
