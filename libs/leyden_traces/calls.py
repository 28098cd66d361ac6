"""One call: `Transition` -> OpenTelemetry span in the gateway, span -> `Transition` in the collector.

Token ids and logprobs travel as bytes, exactly as the gateway packed them from the engine's reply.
"""

import hashlib
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pydantic
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from leyden_contracts import Call, Transition, checked_transition
from leyden_traces import names
from leyden_traces.packing import MalformedSpan, check_tokens, pack_ids, pack_logprobs

FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})
"""How an engine may end a reply. Any other end (`abort`, `error`) is no call to train on."""
CUT = "cut"
"""How the gateway ends the record of a streamed reply that the agent did not hear out: the tokens that it got."""
OUTSIDE = "outside:"
"""Before the name of a provider, in place of a replica's: such a call has no tokens, and is never trained on."""

_ENDS = FINISH_REASONS | {CUT}
_REPEATED = (
    ("run", names.RUN, ("string_value",)),
    ("episode", names.EPISODE, ("string_value",)),
    ("attempt", names.ATTEMPT, ("int_value",)),
    ("role", names.ROLE, ("string_value",)),
    ("policy_version", names.POLICY_VERSION, ("int_value",)),
    ("replica", names.REPLICA, ("string_value",)),
    ("temperature", names.TEMPERATURE, ("double_value", "int_value")),
    ("finish_reason", names.FINISH_REASON, ("string_value",)),
)
"""What many calls say alike: field of a transition, its attribute, and of which types that may be, the usual first."""
_OWN = (
    ("prompt_token_ids", names.PROMPT_TOKEN_IDS, ("bytes_value", "array_value")),
    ("response_token_ids", names.RESPONSE_TOKEN_IDS, ("bytes_value", "array_value")),
    ("response_logprobs", names.RESPONSE_LOGPROBS, ("bytes_value", "array_value")),
    ("number", names.CALL, ("int_value",)),
    ("response_id", names.RESPONSE_ID, ("string_value",)),
)
"""The same of what each call says by itself."""
_PACKED = (
    ("prompt_token_ids", names.PROMPT_TOKEN_IDS, pack_ids, {"int_value"}),
    ("response_token_ids", names.RESPONSE_TOKEN_IDS, pack_ids, {"int_value"}),
    ("response_logprobs", names.RESPONSE_LOGPROBS, pack_logprobs, {"double_value", "int_value"}),
)
"""Field, its attribute, how a list is packed, and what that may hold."""
REPEATED_KEYS = frozenset((*(key for _, key, _ in _REPEATED), names.OPERATION, names.REQUEST_MODEL))
"""The attributes that come first in a span of `encode_call`, before the call's number."""


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
    # First what many calls say alike, then the number and what is this call's own: `plain` goes by this order.
    for key, text_value in (
        (names.RUN, t.run),
        (names.EPISODE, t.episode),
        (names.ROLE, t.role),
        (names.FINISH_REASON, t.finish_reason),
        (names.REPLICA, t.replica),
        (names.OPERATION, names.CHAT),
        (names.REQUEST_MODEL, t.role),
    ):
        add(key=key).value.string_value = text_value
    add(key=names.TEMPERATURE).value.double_value = t.temperature
    for key, number in (
        (names.ATTEMPT, t.attempt),
        (names.POLICY_VERSION, t.policy_version),
        (names.CALL, t.number),
        (names.INPUT_TOKENS, len(t.prompt_token_ids) // 4),
        (names.OUTPUT_TOKENS, len(t.response_token_ids) // 4),
    ):
        add(key=key).value.int_value = number
    add(key=names.RESPONSE_ID).value.string_value = t.response_id
    for key, packed in (
        (names.PROMPT_TOKEN_IDS, t.prompt_token_ids),
        (names.RESPONSE_TOKEN_IDS, t.response_token_ids),
        (names.RESPONSE_LOGPROBS, t.response_logprobs),
    ):
        add(key=key).value.bytes_value = packed
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
    fields = _read(values, _OWN) | read_repeated(values)
    fields["start_ns"] = span.start_time_unix_nano
    fields["end_ns"] = span.end_time_unix_nano
    fields["parent"] = span.parent_span_id.hex() if len(span.parent_span_id) == 8 else ""
    _in_range(names.CALL, fields["number"], 1)
    for name, key, pack, kinds in _PACKED:
        if not isinstance(fields[name], bytes):
            fields[name] = pack(_items(fields[name].values, key, kinds))
    prompt, response, logprobs = (fields["prompt_token_ids"], fields["response_token_ids"], fields["response_logprobs"])
    if prompt or response or logprobs or not fields["replica"].startswith(OUTSIDE):
        check_tokens(prompt, response, logprobs)
    if (latest := max(fields["start_ns"], fields["end_ns"])) >= 2**63:
        raise MalformedSpan(f"a time must be below 2^63 ns, not {latest}")
    fields["agent"] = ""
    return checked_transition(fields)


def read_repeated(values: dict[str, AnyValue]) -> dict[str, Any]:
    """Return the fields that many calls have alike. Raises MalformedSpan."""
    fields = _read(values, _REPEATED)
    _in_range(names.ATTEMPT, fields["attempt"], 1)
    _in_range(names.POLICY_VERSION, fields["policy_version"], 0)
    fields["temperature"] = temperature = float(fields["temperature"])
    if not 0 <= temperature < math.inf:
        raise MalformedSpan(f"{names.TEMPERATURE} must be a finite number of at least 0, not {temperature}")
    if fields["finish_reason"] not in _ENDS:
        reason = fields["finish_reason"]
        raise MalformedSpan(f"{names.FINISH_REASON} must be one of {sorted(_ENDS)}, not {reason!r}")
    _check_ids(fields["run"], fields["episode"], fields["role"])
    return fields


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


def _read(values: dict[str, AnyValue], wanted: Iterable[tuple[str, str, tuple[str, ...]]]) -> dict[str, Any]:
    return {
        # What is of another type reads as empty: only then is it worth asking which type it is.
        name: (key in values and getattr(values[key], kinds[0])) or _value(values, key, *kinds)
        for name, key, kinds in wanted
    }


def _in_range(key: str, value: int, low: int) -> None:
    if not low <= value < 2**31:
        raise MalformedSpan(f"{key} must be from {low} to {2**31 - 1}, not {value}")


@lru_cache(maxsize=4096)
def _check_ids(run: str, episode: str, role: str) -> None:
    """Raises MalformedSpan."""
    try:
        Call(run=run, episode=episode, attempt=1, number=1, role=role, policy_version=0)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise MalformedSpan(f"leyden.{first['loc'][0]}: {first['msg']}") from error


def _items(items: Any, key: str, kinds: set[str]) -> list[Any]:
    numbers = []
    for item in items:
        kind = item.WhichOneof("value")
        if kind not in kinds:
            raise MalformedSpan(f"{key} holds something else than {' or '.join(sorted(kinds))}")
        numbers.append(getattr(item, kind))
    return numbers
