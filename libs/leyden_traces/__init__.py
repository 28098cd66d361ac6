"""Spans in, transitions and trajectories out. Pure: no network, no files, no clock.

`calls.decode_call` is where a span becomes a transition; `trajectory.build_trajectory` makes the trajectory.
`semantics.read_span` is where an agent's own span becomes a fact.
"""

from leyden_traces import names
from leyden_traces.calls import (
    CUT,
    FINISH_REASONS,
    OUTSIDE,
    attributes_of,
    decode_call,
    encode_call,
    is_call,
    span_id,
    text,
    trace_id,
)
from leyden_traces.packing import (
    MalformedSpan,
    all_possible,
    check_tokens,
    pack_ids,
    pack_logprobs,
    unpack_ids,
    unpack_logprobs,
)
from leyden_traces.plain import PLAIN_KEYS, decode_plain, text_keys
from leyden_traces.semantics import Fact, process_of, read_span
from leyden_traces.trajectory import build_trajectory

__all__ = [
    "CUT",
    "FINISH_REASONS",
    "OUTSIDE",
    "PLAIN_KEYS",
    "Fact",
    "MalformedSpan",
    "all_possible",
    "attributes_of",
    "build_trajectory",
    "check_tokens",
    "decode_call",
    "decode_plain",
    "encode_call",
    "is_call",
    "names",
    "pack_ids",
    "pack_logprobs",
    "process_of",
    "read_span",
    "span_id",
    "text",
    "text_keys",
    "trace_id",
    "unpack_ids",
    "unpack_logprobs",
]
