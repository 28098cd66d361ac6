"""Each convention by hand: which fact a span makes. Real instrumentations are in test_instrumentations."""

import json
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from leyden_traces import process_of, read_span
from support.agent_spans import add_event, attributes, fact, make_span

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "policy"}
ASKED = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
SAID = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "", "tool_calls": [ASKED]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
]


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


GENAI = CHAT | {
    "gen_ai.response.id": "r1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 9,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.system_instructions": [part("text", content="Be brief.")],
    "gen_ai.input.messages": [
        {"role": "user", "parts": [part("text", content="1+1?")]},
        {"role": "assistant", "parts": [part("tool_call", id="c1", name="add", arguments='{"a": 1}')]},
        {"role": "tool", "parts": [part("tool_call_response", id="c1", response="2")]},
    ],
    "gen_ai.output.messages": [
        {"role": "assistant", "parts": [part("text", content="2")], "finish_reason": "stop"},
    ],
}
KEYED = CHAT | {
    "gen_ai.response.id": "r1",
    "gen_ai.usage.prompt_tokens": 9,
    "gen_ai.usage.completion_tokens": 3,
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Be brief.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "1+1?",
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.content": "",
    "gen_ai.prompt.2.tool_calls.0.id": "c1",
    "gen_ai.prompt.2.tool_calls.0.name": "add",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"a": 1}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "c1",
    "gen_ai.prompt.3.content": "2",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "2",
    "gen_ai.completion.0.finish_reason": "stop",
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "policy",
    "llm.finish_reason": "stop",
    "llm.token_count.prompt": 9,
    "llm.token_count.completion": 3,
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be brief.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "1+1?",
    "llm.input_messages.2.message.role": "assistant",
    "llm.input_messages.2.message.content": "",
    "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "add",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
    "llm.input_messages.3.message.role": "tool",
    "llm.input_messages.3.message.tool_call_id": "c1",
    "llm.input_messages.3.message.content": "2",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "2",
    "output.value": '{"id": "r1", "object": "chat.completion"}',
}


@pytest.mark.parametrize("values", [GENAI, KEYED, OPENINFERENCE], ids=["genai", "numbered keys", "openinference"])
def test_a_call_is_the_same_in_every_convention(values: dict[str, Any]) -> None:
    found = fact("call", values)
    messages = json.loads(found.messages)
    messages = [{"content": "", **message} if "tool_calls" in message else message for message in messages]
    assert [dict(sorted(message.items())) for message in messages] == [dict(sorted(each.items())) for each in SAID]
    assert json.loads(found.reply) == [{"role": "assistant", "content": "2"}]
    assert (found.kind, found.model, found.response_id, found.finish_reason) == ("llm", "policy", "r1", "stop")
    assert (found.input_tokens, found.output_tokens) == (9, 3)


def test_messages_in_events() -> None:
    span = make_span("call", CHAT)
    add_event(span, "gen_ai.system.message", {"content": "Be brief."})
    add_event(span, "gen_ai.user.message", {"gen_ai.event.content": '{"content": "1+1?"}'})
    add_event(span, "gen_ai.assistant.message", {"tool_calls": json.dumps([ASKED]), "content": ""})
    add_event(span, "gen_ai.tool.message", {"id": "c1", "content": "2"})
    add_event(span, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": '{"content": "2"}'})
    found = read_span(span, "p")
    assert [dict(sorted(message.items())) for message in json.loads(found.messages)] == [
        dict(sorted(each.items())) for each in SAID
    ]
    assert json.loads(found.reply) == [{"role": "assistant", "content": "2"}]
    assert found.finish_reason == "stop"


def test_messages_in_the_event_of_today() -> None:
    span = make_span("call", CHAT)
    values = {key: json.dumps(value) for key, value in GENAI.items() if isinstance(value, list)}
    add_event(span, "gen_ai.client.inference.operation.details", values)
    assert read_span(span, "p").messages == fact("call", GENAI).messages


def test_structured_values_are_read_as_json_is() -> None:
    span = make_span("call", CHAT)
    span.attributes.extend(attributes({key: value for key, value in GENAI.items() if isinstance(value, list)}))
    assert read_span(span, "p").messages == fact("call", GENAI).messages


@pytest.mark.parametrize(
    ("values", "kind", "name", "agent"),
    [
        ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}, "tool", "add", ""),
        ({"gen_ai.operation.name": "execute_tool"}, "tool", "a span", ""),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "ann"}, "agent", "ann", "ann"),
        ({"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": "books"}, "retrieval", "books", ""),
        ({"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "w"}, "other", "w", ""),
        ({"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "ann"}, "plain", "a span", ""),
        ({"openinference.span.kind": "TOOL", "tool.name": "add"}, "tool", "add", ""),
        ({"openinference.span.kind": "AGENT", "agent.name": "ann"}, "agent", "ann", "ann"),
        ({"openinference.span.kind": "AGENT", "graph.node.id": "ann"}, "agent", "ann", "ann"),
        ({"openinference.span.kind": "RETRIEVER"}, "retrieval", "a span", ""),
        ({"openinference.span.kind": "GUARDRAIL"}, "other", "a span", ""),
        ({"openinference.span.kind": "CHAIN"}, "plain", "a span", ""),
        ({"openinference.span.kind": "CHAIN", "metadata": {"lc_agent_name": "a span"}}, "agent", "a span", "a span"),
        ({"traceloop.span.kind": "tool", "traceloop.entity.name": "add"}, "tool", "add", ""),
        ({"traceloop.span.kind": "agent", "traceloop.entity.name": "ann"}, "agent", "ann", "ann"),
        ({"traceloop.span.kind": "workflow", "traceloop.entity.name": "w"}, "plain", "a span", ""),
        ({"http.request.method": "POST"}, "plain", "a span", ""),
        ({}, "plain", "a span", ""),
    ],
)
def test_kinds_and_names(values: dict[str, Any], kind: str, name: str, agent: str) -> None:
    found = fact("a span", values)
    assert (found.kind, found.name, found.agent) == (kind, name, agent)


@pytest.mark.parametrize(
    "values",
    [
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c1"}
        | {"gen_ai.tool.call.arguments": {"a": 1}, "gen_ai.tool.call.result": "2"},
        {"openinference.span.kind": "TOOL", "input.value": {"a": 1}}
        | {"output.value": {"type": "tool", "data": {"content": "2", "tool_call_id": "c1", "status": "success"}}},
        {"traceloop.span.kind": "tool", "traceloop.entity.input": {"input_str": "{'a': 1}"}}
        | {"traceloop.entity.output": {"output": {"lc": 1, "kwargs": {"content": "2", "tool_call_id": "c1"}}}},
    ],
    ids=["genai", "openinference", "traceloop"],
)
def test_a_tool_is_the_same_in_every_convention(values: dict[str, Any]) -> None:
    found = fact("t", values)
    assert (json.loads(found.arguments), found.result, found.tool_call_id) == ({"a": 1}, "2", "c1")
    assert (
        found.same_arguments
        == fact("u", {"traceloop.span.kind": "tool", "traceloop.entity.input": '{ "a":1}'}).same_arguments
    )
    assert not found.failed


def test_two_conventions_on_one_span_fill_each_others_gaps() -> None:
    both = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add", "traceloop.span.kind": "tool"}
    found = fact("t", both | {"traceloop.entity.input": {"a": 1}})
    assert (found.name, found.arguments) == ("add", '{"a": 1}')


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}


def test_a_failure_is_told_by_status_or_by_langchains_message() -> None:
    failed = make_span("t", TOOL, error="boom")
    assert (read_span(failed, "p").failed, read_span(failed, "p").error) == (True, "boom")
    failed.status.message = ""
    add_event(failed, "exception", {"exception.type": "ValueError", "exception.message": "no such number"})
    assert read_span(failed, "p").error == "no such number"
    told = {"openinference.span.kind": "TOOL", "output.value": {"data": {"content": "Error: no", "tool_call_id": "c"}}}
    told["output.value"]["data"]["status"] = "error"
    assert (fact("t", told).failed, fact("t", told).error) == (True, "Error: no")


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("pydantic_core._pydantic_core.ValidationError", True),
        ("jsonschema.exceptions.ValidationError", True),
        ("json.decoder.JSONDecodeError", True),
        ("ToolInputParsingException", True),
        ("ValueError", False),
        ("TimeoutError", False),
    ],
)
def test_a_tool_refused_its_arguments_by_the_name_of_the_exception(error: str, refused: bool) -> None:
    span = make_span("t", TOOL, error="x")
    add_event(span, "exception", {"exception.type": error})
    assert read_span(span, "p").odd_arguments is refused
    assert read_span(make_span("t", TOOL | {"error.type": error}, error="x"), "p").odd_arguments is refused
    assert not read_span(make_span("t", TOOL | {"error.type": error}), "p").odd_arguments, "it did not fail"


@pytest.mark.parametrize(
    ("arguments", "odd"),
    [('{"a": 1}', False), ("{}", False), ("", False), ('{"a": 1', True), ("[1]", True), ("7", True)],
)
def test_a_reply_may_ask_with_arguments_that_are_no_json_object(arguments: str, odd: bool) -> None:
    asked = {"id": "c", "type": "tool_call", "name": "add", "arguments": arguments}
    found = fact("call", CHAT | {"gen_ai.output.messages": [{"role": "assistant", "parts": [asked]}]})
    assert (found.odd_arguments, found.asked_tools) == (odd, ("c",))


def test_text_is_cut_to_its_bounds() -> None:
    found = fact("t", TOOL | {"gen_ai.tool.call.arguments": "é" * 5000, "gen_ai.tool.call.result": "x" * 5000})
    assert (len(found.arguments.encode()), len(found.result)) == (4096, 4096)
    many = [{"role": "user", "content": f"{number} " + "y" * 1000} for number in range(1000)]
    found = fact("call", CHAT | {"gen_ai.input.messages": many})
    messages = json.loads(found.messages)
    assert 200_000 < len(found.messages) < 263_000
    assert messages[-1] == {"role": "cut", "content": f"{1000 - len(messages) + 1} more messages were too long to keep"}
    assert [message["content"].split()[0] for message in messages[:2]] == ["0", "1"]


def test_a_process_is_its_resource_in_any_order() -> None:
    values = attributes({"service.name": "a", "host.name": "b"})
    one, same = Resource(attributes=values), Resource(attributes=values[::-1])
    assert process_of(one) == process_of(same) != process_of(Resource(attributes=values[:1]))


def test_an_attribute_that_is_given_twice_is_the_last() -> None:
    span = make_span("t", TOOL)
    span.attributes.append(KeyValue(key="gen_ai.tool.name", value=attributes({"x": "sub"})[0].value))
    assert read_span(span, "p").name == "sub"


def test_nothing_is_kept_behind_a_gap() -> None:
    shown = [{"role": "user", "content": "y" * size} for size in (10, 300_000, 10)]
    first, mark = json.loads(fact("call", CHAT | {"gen_ai.input.messages": shown}).messages)
    assert (first["content"], mark["content"]) == ("y" * 10, "2 more messages were too long to keep")
