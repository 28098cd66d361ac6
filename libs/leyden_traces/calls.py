"""One call: `Transition` -> OpenTelemetry span in the gateway, span -> `Transition` in the collector.

Token ids and logprobs travel as bytes, exactly as the gateway packed them from the engine's reply.
"""

import hashlib
import math
from typing import Any

import pydantic
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Transition
from leyden_traces import names
from leyden_traces.packing import MalformedSpan, check_tokens, pack_ids, pack_logprobs

FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})
"""How an engine may end a reply. Any other end (`abort`, `error`) is no call to train on."""
CUT = "cut"
"""How the gateway ends the record of a streamed reply that the agent did not hear out: the tokens that it got."""
OUTSIDE = "outside:"
"""Before the name of a provider, in place of a replica's: such a call has no tokens, and is never trained on."""

_ENDS = FINISH_REASONS | {CUT}
_LIMITS = {names.ATTEMPT: (1, 2**31), names.CALL: (1, 2**31), names.POLICY_VERSION: (0, 2**31)}


def trace_id(run: str, episode: str, attempt: int) -> bytes:
    """Return the 16-byte trace id of an attempt: the agent's spans and the gateway's share it."""
    return hashlib.sha256(f"{run}/{episode}/{attempt}".encode()).digest()[:16]


def span_id(run: str, episode: str, attempt: int, call: int) -> bytes:
    """Return the 8-byte span id of a call: the same call sent twice is the same span."""
    return hashlib.sha256(f"{run}/{episode}/{attempt}/{call}".encode()).digest()[:8]


def is_call(span: Span) -> bool:
    """Say whether `span` claims to be an LLM call recorded by the gateway."""
    return any(attribute.key == names.CALL for attribute in span.attributes)


def encode_call(
    transition: Transition, start_ns: int, end_ns: int, trace_id: bytes, span_id: bytes, parent_id: bytes
) -> Span:
    """Return the span of one call.

    Args:
        transition: the call with its tokens.
        start_ns: when the request reached the gateway, nanoseconds since the epoch.
        end_ns: when the reply was about to leave, nanoseconds since the epoch.
        trace_id: 16 bytes.
        span_id: 8 bytes.
        parent_id: 8 bytes, or empty.
    """
    t = transition
    span = Span(
        name=f"{names.CHAT} {t.role}",
        kind=Span.SPAN_KIND_CLIENT,
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent_id,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
    )
    # Adding in place costs half of what building each attribute apart costs, and there are many.
    add = span.attributes.add
    for key, text_value in (
        (names.RUN, t.run),
        (names.EPISODE, t.episode),
        (names.ROLE, t.role),
        (names.FINISH_REASON, t.finish_reason),
        (names.RESPONSE_ID, t.response_id),
        (names.REPLICA, t.replica),
        (names.OPERATION, names.CHAT),
        (names.REQUEST_MODEL, t.role),
    ):
        add(key=key).value.string_value = text_value
    for key, number in (
        (names.ATTEMPT, t.attempt),
        (names.CALL, t.number),
        (names.POLICY_VERSION, t.policy_version),
        (names.INPUT_TOKENS, len(t.prompt_token_ids) // 4),
        (names.OUTPUT_TOKENS, len(t.response_token_ids) // 4),
    ):
        add(key=key).value.int_value = number
    for key, packed in (
        (names.PROMPT_TOKEN_IDS, t.prompt_token_ids),
        (names.RESPONSE_TOKEN_IDS, t.response_token_ids),
        (names.RESPONSE_LOGPROBS, t.response_logprobs),
    ):
        add(key=key).value.bytes_value = packed
    add(key=names.TEMPERATURE).value.double_value = t.temperature
    return span


def attributes_of(span: Span) -> dict[str, AnyValue]:
    """Return the span's attributes by key; of one given twice, the last."""
    return {attribute.key: attribute.value for attribute in span.attributes}


def decode_call(span: Span, attributes: dict[str, AnyValue] | None = None) -> Transition:
    """Return the transition that `span` records.

    Packed bytes are taken as they are; lists of integers and doubles are packed.

    Args:
        span: says that it is a call (`is_call`).
        attributes: `attributes_of(span)`, where the caller has them already.

    Raises:
        MalformedSpan: an attribute is missing, doubled, of the wrong type or out of range, or the tokens do
            not fit each other. Its `reason` names the attribute.
    """
    values = attributes_of(span) if attributes is None else attributes
    if len(values) != len(span.attributes):
        raise MalformedSpan("an attribute is given twice")
    prompt = _ids(values, names.PROMPT_TOKEN_IDS)
    response = _ids(values, names.RESPONSE_TOKEN_IDS)
    logprobs = _logprobs(values, names.RESPONSE_LOGPROBS)
    replica = _text(values, names.REPLICA)
    if prompt or response or logprobs or not replica.startswith(OUTSIDE):
        check_tokens(prompt, response, logprobs)
    try:
        return Transition(
            run=_text(values, names.RUN),
            episode=_text(values, names.EPISODE),
            attempt=_int(values, names.ATTEMPT),
            number=_int(values, names.CALL),
            role=_text(values, names.ROLE),
            policy_version=_int(values, names.POLICY_VERSION),
            prompt_token_ids=prompt,
            response_token_ids=response,
            response_logprobs=logprobs,
            temperature=_temperature(values),
            finish_reason=_finish_reason(values),
            response_id=_text(values, names.RESPONSE_ID),
            replica=replica,
            start_ns=_time(span.start_time_unix_nano),
            end_ns=_time(span.end_time_unix_nano),
            parent=span.parent_span_id.hex() if len(span.parent_span_id) == 8 else "",
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise MalformedSpan(f"leyden.{first['loc'][0]}: {first['msg']}") from error


def text(key: str, value: str) -> KeyValue:
    """Return a string attribute."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _integer(key: str, value: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=value))


def _packed(key: str, value: bytes) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(bytes_value=value))


def _value(values: dict[str, AnyValue], key: str, *kinds: str) -> Any:
    found = values.get(key)
    if found is None:
        raise MalformedSpan(f"{key} is missing")
    kind = found.WhichOneof("value")
    if kind not in kinds:
        raise MalformedSpan(f"{key} must be {' or '.join(kinds)}, not {kind or 'empty'}")
    return getattr(found, kind)


def _text(values: dict[str, AnyValue], key: str) -> str:
    # What is of another type reads as empty: only then is it worth asking which type it is.
    return (key in values and values[key].string_value) or _value(values, key, "string_value")


def _int(values: dict[str, AnyValue], key: str) -> int:
    value = (key in values and values[key].int_value) or _value(values, key, "int_value")
    low, high = _LIMITS[key]
    if not low <= value < high:
        raise MalformedSpan(f"{key} must be from {low} to {high - 1}, not {value}")
    return value


def _time(nanoseconds: int) -> int:
    if nanoseconds >= 2**63:
        raise MalformedSpan(f"a time must be below 2^63 ns, not {nanoseconds}")
    return nanoseconds


def _temperature(values: dict[str, AnyValue]) -> float:
    given = values.get(names.TEMPERATURE)
    value = (given and given.double_value) or float(_value(values, names.TEMPERATURE, "double_value", "int_value"))
    if not (math.isfinite(value) and value >= 0):
        raise MalformedSpan(f"{names.TEMPERATURE} must be a finite number of at least 0, not {value}")
    return value


def _finish_reason(values: dict[str, AnyValue]) -> str:
    value = _text(values, names.FINISH_REASON)
    if value not in _ENDS:
        raise MalformedSpan(f"{names.FINISH_REASON} must be one of {sorted(_ENDS)}, not {value!r}")
    return value


def _ids(values: dict[str, AnyValue], key: str) -> bytes:
    value = (key in values and values[key].bytes_value) or _value(values, key, "bytes_value", "array_value")
    if isinstance(value, bytes):
        return value
    return pack_ids(_items(value.values, key, {"int_value"}))


def _logprobs(values: dict[str, AnyValue], key: str) -> bytes:
    value = (key in values and values[key].bytes_value) or _value(values, key, "bytes_value", "array_value")
    if isinstance(value, bytes):
        return value
    return pack_logprobs(_items(value.values, key, {"double_value", "int_value"}))


def _items(items: Any, key: str, kinds: set[str]) -> list[Any]:
    numbers = []
    for item in items:
        kind = item.WhichOneof("value")
        if kind not in kinds:
            raise MalformedSpan(f"{key} holds something else than {' or '.join(sorted(kinds))}")
        numbers.append(getattr(item, kind))
    return numbers
