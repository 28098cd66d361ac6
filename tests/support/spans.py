"""Call spans, agents' spans and export requests for tests."""

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from leyden_contracts import Transition
from leyden_traces import encode_call, pack_ids, pack_logprobs, span_id, trace_id


def transition(number: int = 1, *, tokens: int = 8, **fields: object) -> Transition:
    """Return a call with tokens made from its number."""
    random = np.random.default_rng(number)
    whole = {
        "run": "run-a",
        "episode": "g-0.0",
        "attempt": 1,
        "number": number,
        "role": "policy",
        "policy_version": 0,
        "prompt_token_ids": pack_ids(random.integers(0, 1000, tokens)),
        "response_token_ids": pack_ids(random.integers(0, 1000, tokens)),
        "response_logprobs": pack_logprobs(-random.random(tokens)),
        "temperature": 1.0,
        "finish_reason": "stop",
        "response_id": f"chat-{number}",
        "replica": "replica-0",
        "start_ns": 1,
        "end_ns": 2,
    }
    return Transition.model_validate(whole | fields)


def call_span(call: Transition) -> Span:
    """Return the span that the gateway sends for `call`."""
    identity = (call.run, call.episode, call.attempt)
    return encode_call(call, call.start_ns, call.end_ns, trace_id(*identity), span_id(*identity, call.number), b"")


def broken_span(call: Transition) -> Span:
    """Return a call span with one logprob too few."""
    return call_span(call.model_copy(update={"response_logprobs": call.response_logprobs[4:]}))


def agent_span(name: str = "think", **attributes: str | int) -> Span:
    """Return a span as an agent's own instrumentation makes it."""
    span = Span(name=name, trace_id=b"t" * 16, span_id=b"s" * 8)
    span.attributes.extend(attribute(key, value) for key, value in attributes.items())
    return span


def attribute(key: str, value: str | int) -> KeyValue:
    """Return an attribute; `leyden__run` stands for `leyden.run`."""
    value = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=key.replace("__", "."), value=value)


def request(*spans: Span, **resource: str | int) -> ExportTraceServiceRequest:
    """Return one export request with `spans` under one resource."""
    attributes = [attribute(key, value) for key, value in resource.items()]
    group = ResourceSpans(resource=Resource(attributes=attributes), scope_spans=[ScopeSpans(spans=spans)])
    return ExportTraceServiceRequest(resource_spans=[group])


def spans_of(*blobs: bytes) -> list[Span]:
    """Return all spans of serialized requests that were concatenated."""
    whole = ExportTraceServiceRequest.FromString(b"".join(blobs))
    return [span for group in whole.resource_spans for scope in group.scope_spans for span in scope.spans]
