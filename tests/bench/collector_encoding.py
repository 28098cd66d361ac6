"""Packed bytes against list attributes, for spans as large as an LLM call's: 2,048 prompt ids, 256 tokens, logprobs.

The client's side is from token lists to a serialized export request: ours as the gateway does it, the other by the
OpenTelemetry SDK's encoder with lists, as instrumentations do it. The server's side is from the request's bytes to
transitions, by our collector's own code, which takes both: all that it does before it stores them (`admit`).
"""

import random
import time
from collections.abc import Callable

from figures import show
from ledger_parts import middle
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from leyden_collector.admission import admit
from leyden_collector.settings import CollectorSettings
from leyden_contracts import Transition
from leyden_runtime.tokens import Claims, Scope
from leyden_traces import encode_call, names, pack_ids, pack_logprobs

SPANS = 64
GATEWAY = Claims(Scope.SPANS, "default")
LIMITS = CollectorSettings().span_limits
_random = random.Random(0)
PROMPT = [_random.randrange(150_000) for _ in range(2048)]
RESPONSE = [_random.randrange(150_000) for _ in range(256)]
LOGPROBS = [round(-2 * _random.random(), 7) for _ in range(256)]
_TEXTS = {
    names.RUN: "bench",
    names.EPISODE: "g.0",
    names.ROLE: "policy",
    names.FINISH_REASON: "stop",
    names.RESPONSE_ID: "chat-1",
    names.REPLICA: "r0",
}
_NUMBERS = {names.ATTEMPT: 1, names.CALL: 1, names.POLICY_VERSION: 3, names.TEMPERATURE: 1.0}
_LISTS = {
    names.PROMPT_TOKEN_IDS: PROMPT,
    names.RESPONSE_TOKEN_IDS: RESPONSE,
    names.RESPONSE_LOGPROBS: LOGPROBS,
}


def packed() -> bytes:
    """Return a request of `SPANS` calls as the gateway sends it."""
    spans = []
    for number in range(1, SPANS + 1):
        call = Transition.model_construct(
            run="bench",
            episode="g.0",
            attempt=1,
            number=number,
            role="policy",
            policy_version=3,
            prompt_token_ids=pack_ids(PROMPT),
            response_token_ids=pack_ids(RESPONSE),
            response_logprobs=pack_logprobs(LOGPROBS),
            temperature=1.0,
            finish_reason="stop",
            response_id="chat-1",
            replica="r0",
        )
        spans.append(encode_call(call, 1, 2, b"t" * 16, b"s" * 8, b""))
    group = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])
    return ExportTraceServiceRequest(resource_spans=[group]).SerializeToString()


def listed() -> bytes:
    """Return the same calls with lists, by the SDK's own encoder."""
    scope = InstrumentationScope("bench")
    spans = []
    for number in range(1, SPANS + 1):
        context = SpanContext(1, number, is_remote=False, trace_flags=TraceFlags(1))
        facts = {**_TEXTS, **_NUMBERS, names.CALL: number, **_LISTS}
        made = {"attributes": facts, "instrumentation_scope": scope, "start_time": 1, "end_time": 2}
        spans.append(ReadableSpan("chat policy", context, **made))
    return encode_spans(spans).SerializeToString()


def read(body: bytes) -> list[Transition]:
    """Return the calls of a request, as the collector takes them in."""
    (share,) = admit(body, GATEWAY, LIMITS, most=SPANS, shown=0)
    return share.calls


def _rate(work: Callable[[], object], seconds: float = 0.5) -> float:
    """Return spans a CPU second."""
    started, times = time.process_time(), 0
    while time.process_time() - started < seconds:
        work()
        times += 1
    return times * SPANS / (time.process_time() - started)


def report(rounds: int = 5) -> None:
    """Measure and print."""
    few, many = packed(), listed()
    assert [(call.number, call.prompt_token_ids) for call in read(few)] == [
        (call.number, call.prompt_token_ids) for call in read(many)
    ], "both say the same"
    client = [(_rate(packed), _rate(listed)) for _ in range(rounds)]
    server = [(_rate(lambda: read(few)), _rate(lambda: read(many))) for _ in range(rounds)]
    for side, rates, target in (("server", server, 50), ("client", client, 40)):
        ratio, baseline = middle(a / b for a, b in rates), middle(b for _, b in rates)
        show(f"collector.{side}_vs_lists", ratio, "ratio of spans a CPU second", target, 1)
        show(f"collector.{side}_spans_per_cpu_s", middle(a for a, _ in rates), "spans/CPU-s", baseline=baseline)
    show("collector.bytes_per_span", len(few) / SPANS, "bytes", baseline=len(many) / SPANS)
