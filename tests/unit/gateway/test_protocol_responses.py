"""OpenAI's Responses API: the request as a chat request, the reply as items and events."""

import json
from itertools import pairwise

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Head
from leyden_gateway.protocols.responses import Responses
from leyden_gateway.protocols.responses_read import LOGPROBS as INCLUDE
from support.protocols import LOGPROBS, events, read, reply, streamed

EVENT: TypeAdapter = TypeAdapter(ResponseStreamEvent)
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
CALL = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
FULL = {"role": "assistant", "reasoning": "hm", "content": "let me see", "tool_calls": [CALL, {**CALL, "id": "call-2"}]}

SAID = [
    {"role": "assistant", **said} for said in ({"content": "hi"}, {"content": ""}, {"content": None}, {"refusal": "no"})
]


def fields(**more: object) -> dict:
    ask = read(Responses(), **{"input": "hi", **more})
    return msgspec.json.decode(msgspec.json.encode(ask.fields))


def text(kind: str, *texts: str) -> list[dict]:
    return [{"type": kind, "text": one} for one in texts]


def test_a_conversation_becomes_chat_messages():
    call = {"type": "function_call", "call_id": "call-1", "name": "f", "arguments": "{}", "id": "fc_1"}
    items = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": text("input_text", "a", "b")},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "secret"},
        {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": text("output_text", "c")},
        call,
        {**call, "call_id": "call-2"},
        {"type": "function_call_output", "call_id": "call-1", "output": "7"},
        {"type": "function_call_output", "call_id": "call-2", "output": text("input_text", "8")},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    made = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert fields(input=items, instructions="sys")["messages"] == [
        {"role": "system", "content": "sys"},
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": text("text", "a", "b")},
        {"role": "assistant", "content": "c", "tool_calls": [{"id": "call-1", **made}, {"id": "call-2", **made}]},
        {"role": "tool", "content": "7", "tool_call_id": "call-1"},
        {"role": "tool", "content": text("text", "8"), "tool_call_id": "call-2"},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]


def test_what_was_answered_can_be_sent_back():
    """The items of an answer make the message that the replica wrote."""
    ask = read(Responses(), input="hi")
    body = json.loads(Responses().answer(ask, [reply(FULL, finish_reason="tool_calls")]))
    assert fields(input=body["output"])["messages"] == [FULL]


def test_an_unfinished_message_is_continued():
    unfinished = {"type": "message", "role": "assistant", "status": "incomplete", "content": text("output_text", "c")}
    asked = fields(input=[{"role": "user", "content": "a"}, unfinished])
    assert (asked["add_generation_prompt"], asked["continue_final_message"]) == (False, True)
    assert "continue_final_message" not in fields(input=[unfinished, {"role": "user", "content": "a"}])


def test_fields_get_chats_names():
    schema = {"name": "s", "schema": {"type": "object"}, "strict": True}
    asked = read(
        Responses(), input="hi", max_output_tokens=9, temperature=0.5, top_p=0.25, stream=True, include=[INCLUDE]
    )
    assert (asked.max_tokens, asked.temperature, asked.top_p, asked.stream, asked.logprobs) == (
        9,
        0.5,
        0.25,
        True,
        True,
    )
    found = fields(
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", **schema}},
        reasoning={"effort": "low", "summary": "auto"},
        top_logprobs=3,
        truncation="auto",
        seed=4,
    )
    function = {name: value for name, value in TOOL.items() if name != "type"}
    assert found == {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "reasoning_effort": "low",
        "top_logprobs": 3,
        "truncate_prompt_tokens": -1,
        "seed": 4,
    }


def test_what_changes_nothing_is_accepted_and_not_passed_on():
    harmless = {
        "store": True, "metadata": {"a": "b"}, "user": "u", "service_tier": "auto", "prompt_cache_key": "k",
        "include": ["reasoning.encrypted_content"], "truncation": "disabled", "background": False, "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "previous_response_id": None, "conversation": None, "reasoning": None, "max_tool_calls": 3,
        "top_logprobs": None,
    }  # fmt: skip
    assert fields(**harmless) == {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ({"previous_response_id": "r"}, "send the whole conversation in `input`"),
        ({"background": True}, "send the whole conversation in `input`"),
        ({"conversation": "c"}, "send the whole conversation in `input`"),
        ({"prompt": {"id": "p"}}, "no prompts are stored"),
        ({"tools": [{"type": "web_search"}]}, "tools of type 'web_search' are not supported"),
        ({"tools": [{"type": "function"}]}, "name"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "'web_search'"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "not among `tools`"),
        ({"tool_choice": "required"}, "needs `tools`"),
        ({"tool_choice": {"type": "function", "name": "g"}}, "needs `tools`"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "`name` and a `schema`"),
        ({"text": {"verbosity": "low"}}, "verbosity"),
        ({"truncation": "middle"}, "truncation"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": 0}, "at least 1"),
        ({"no_such_field": 1}, "`no_such_field` is not supported"),
        ({"input": []}, "empty"),
        ({"input": [3]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "send the whole item"),
        ({"input": [{"type": "web_search_call"}]}, "'web_search_call'"),
        ({"input": [{"role": "king", "content": "x"}]}, "role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "'input_file'"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "arguments"),
        ({"input": [{"type": "function_call_output", "output": "c"}]}, "call_id"),
    ],
)
def test_what_would_change_the_reply_is_refused(field, advice):
    with pytest.raises(ApiError) as caught:
        fields(**field)
    assert caught.value.status == 400
    assert advice in caught.value.message


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls"])
@pytest.mark.parametrize("message", [FULL, *SAID])
def test_a_stream_holds_what_the_whole_answer_holds(message, finish):
    ask = read(Responses(), input="hi", tools=[TOOL], include=[INCLUDE])
    finished = reply(message, show_logprobs=True, finish_reason=finish)
    whole = json.loads(Responses().answer(ask, [finished]))
    found = streamed(Responses(), ask, finished)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    status = "incomplete" if finish == "length" else "completed"
    assert found[-1] == {"type": f"response.{status}", "response": whole, "sequence_number": len(found) - 1}
    added = [event["item"] for event in found if event["type"] == "response.output_item.added"]
    assert [item.get("arguments") or item.get("content") or "" for item in added] == [""] * len(added)
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    assert [item["status"] for item in done] == ["completed"] * (len(done) - 1) + [status]
    assert whole["incomplete_details"] == ({"reason": "max_output_tokens"} if finish == "length" else None)
    Response.model_validate(whole)
    for event in found:
        EVENT.validate_python(event)


def test_events_come_in_openais_order():
    ask = read(Responses(), input="hi", stream=True)
    found = streamed(Responses(), ask, reply(FULL, finish_reason="tool_calls"))
    part = ["content_part.added", "TEXT.delta", "TEXT.done", "content_part.done"]
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    expected = ["created", "in_progress"]
    for kind in ("reasoning_text", "output_text"):
        expected += ["output_item.added", *(name.replace("TEXT", kind) for name in part), "output_item.done"]
    expected += [*call, *call, "completed"]
    assert [event["type"].removeprefix("response.") for event in found] == expected
    for before, after in pairwise(event["output_index"] for event in found if "output_index" in event):
        assert after - before in (0, 1)


def test_logprobs_are_shown_if_asked_for():
    asked = read(Responses(), input="hi", include=[INCLUDE])
    found = streamed(Responses(), asked, reply(show_logprobs=True))
    (part,) = found[-1]["response"]["output"][0]["content"]
    assert part["logprobs"] == LOGPROBS
    assert [one for event in found if event["type"].endswith("text.delta") for one in event["logprobs"]] == LOGPROBS
    found = streamed(Responses(), read(Responses(), input="hi"), reply())
    assert found[-1]["response"]["output"][0]["content"][0]["logprobs"] == []


def test_pieces_of_one_thing_add_up():
    """As live streams have them: tokens without text at the end, and a call in several pieces."""
    ask = read(Responses(), input="hi", include=[INCLUDE])
    writer = Responses().events(ask, Head("c1", 7, 2))
    one, two = (msgspec.Raw(json.dumps({"content": [entry]}).encode()) for entry in LOGPROBS)
    begun = {"index": 0, "id": "call-1", "function": {"name": "f", "arguments": '{"x":'}}
    deltas = [{"role": "assistant", "content": ""}, {"content": "hi"}, {"content": ""}]
    pieces = [writer.piece(0, delta, raw) for delta, raw in zip(deltas, (None, one, two), strict=True)]
    pieces.append(writer.piece(0, {"tool_calls": [begun]}, None))
    pieces.append(writer.piece(0, {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}, None))
    found = events(b"".join(pieces) + writer.finish([reply()]))
    said, called = found[-1]["response"]["output"]
    assert (said["content"][0]["text"], said["content"][0]["logprobs"]) == ("hi", LOGPROBS)
    assert (called["call_id"], called["name"], called["arguments"]) == ("call-1", "f", '{"x": 1}')
    (end,) = [event for event in found if event["type"] == "response.function_call_arguments.done"]
    assert end["arguments"] == called["arguments"]


def test_what_the_assistant_said_twice_stays_apart():
    items = [{"role": "assistant", "content": text} for text in "ab"]
    assert fields(input=items)["messages"] == items


def test_usage():
    body = json.loads(Responses().answer(read(Responses(), input="hi"), [reply()]))
    assert body["usage"] == {
        "input_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 4,
    }


def test_details_of_usage_are_passed_on():
    usage = {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    made = msgspec.structs.replace(reply(), usage=msgspec.Raw(json.dumps(usage).encode()))
    told = json.loads(Responses().answer(read(Responses(), input="hi"), [made]))["usage"]
    assert told["input_tokens_details"]["cached_tokens"] == 1
    assert told["output_tokens_details"]["reasoning_tokens"] == 2


def test_a_stream_that_breaks_says_so_twice():
    ask = read(Responses(), input="hi")
    writer = Responses().events(ask, Head("c1", 7, 2))
    begun = writer.piece(0, {"content": "half"}, None)
    found = events(begun + writer.fail(ApiError(502, "upstream_broken", "gone")))
    assert [event["type"] for event in found[-2:]] == ["error", "response.failed"]
    assert found[-2]["error"]["message"] == found[-2]["message"] == "gone"
    assert found[-1]["response"]["status"] == "failed"
    assert found[-1]["response"]["error"] == {"code": "server_error", "message": "gone"}
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == "half"
