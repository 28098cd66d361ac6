"""No span stops the reading, whatever stands in it, and what is read stays within its bounds."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from leyden_contracts import SignalRules, Trajectory
from leyden_traces import read_span
from leyden_traces.semantics.messages import MAX_MESSAGES
from support.agent_spans import add_event, assemble, attributes
from support.spans import transition

_KEYS = """
gen_ai.operation.name gen_ai.system gen_ai.request.model gen_ai.response.id gen_ai.response.finish_reasons
gen_ai.agent.name gen_ai.tool.name gen_ai.tool.call.id gen_ai.tool.call.arguments gen_ai.tool.call.result
gen_ai.input.messages gen_ai.output.messages gen_ai.system_instructions gen_ai.prompt gen_ai.completion
gen_ai.prompt.0 gen_ai.prompt.0.content gen_ai.prompt.0.role gen_ai.prompt.0.tool_calls.0.name gen_ai.prompt.x.y
gen_ai.completion.0.tool_calls gen_ai.completion.0.content.deep gen_ai.usage.input_tokens gen_ai.event.content
gen_ai.usage.output_tokens gen_ai.data_source.id gen_ai.handoff.to_agent llm.request.type content message tool_calls
role id finish_reason exception.type exception.message error.type openinference.span.kind
llm.input_messages.0.message.role llm.input_messages.0.message.content llm.input_messages.0.message
llm.input_messages.0.message.contents.0.message_content.text llm.input_messages.0.function.0 llm.prompts.0.prompt
llm.output_messages.0.message.tool_calls.0.tool_call.id llm.output_messages.0.message.tool_calls.0.tool_call
llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments llm.output_messages llm.model_name
llm.token_count.prompt llm.token_count.completion llm.finish_reason input.value output.value tool.name agent.name
graph.node.id metadata traceloop.span.kind traceloop.entity.name traceloop.entity.input traceloop.entity.output
"""
_WORDS = r"""
chat execute_tool invoke_agent retrieval LLM TOOL AGENT CHAIN tool agent r1 c1 add {} [] [[]] [1] {'a':1} null 1e999
{"parts":[{"type":"tool_call"}]} [{"role":1,"parts":[{"type":[]}]}] [{"tool_calls":[{"function":[]}]}] [NaN]
{"data":{"tool_call_id":[],"status":"error"}} [{"message":{"tool_calls":[{"function":{"arguments":{}}}]}}]
{"inputs":{"a":"\ud800"}} {"generations":[[{"message":{"kwargs":{"id":7}}}]]} "\ud800"
"""
_EVENTS = """
exception gen_ai.user.message gen_ai.tool.message gen_ai.choice gen_ai.content.prompt other
gen_ai.client.inference.operation.details
"""
KEYS = _KEYS.split()
WORDS = st.sampled_from(_WORDS.split())
VALUES = st.recursive(
    WORDS
    | st.text(max_size=5)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.booleans()
    | st.none()
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)
SPAN_IDS = st.sampled_from([bytes([number]) * 8 for number in range(5)] + [b"", b"x"])
EVENTS = st.sampled_from(_EVENTS.split())


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Return a span that may hold anything that OTLP can carry."""
    times = st.integers(0, 2**64 - 1)
    span = Span(
        name=draw(st.text(max_size=5)),
        span_id=draw(SPAN_IDS.filter(lambda found: len(found) == 8)),
        parent_span_id=draw(SPAN_IDS),
        start_time_unix_nano=draw(times),
        end_time_unix_nano=draw(times),
        attributes=attributes(draw(ATTRIBUTES)),
        status=Status(code=draw(st.integers(0, 3)), message=draw(st.text(max_size=3))),
    )
    for name in draw(st.lists(EVENTS, max_size=2)):
        add_event(span, name, draw(ATTRIBUTES))
    return span


RULES = SignalRules.model_validate(dict.fromkeys(SignalRules.model_fields, 1e308))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(spans(), max_size=6))
def test_anything_can_be_read_and_stored(found: list[Span]) -> None:
    facts = [read_span(span, "p") for span in found]
    for fact in facts:
        assert max(len(fact.arguments), len(fact.result), len(fact.error)) <= 4096
        assert len(fact.messages) <= MAX_MESSAGES + 200
        for text in (fact.messages, fact.reply):
            assert isinstance(json.loads(text or "[]"), list)
    trajectory = assemble([transition(1, response_id="r1"), transition(2, parent="01" * 8)], facts, rules=RULES)
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory


def test_deep_nesting_is_text() -> None:
    for deep in ("[" * 100_000, "[" * 3000 + "]" * 3000, "{'a':" * 700 + "1" + "}" * 700):
        values = {"traceloop.span.kind": "tool", "traceloop.entity.input": deep, "traceloop.entity.output": deep}
        fact = read_span(Span(span_id=b"s" * 8, attributes=attributes(values)), "p")
        assert fact.kind == "tool"
