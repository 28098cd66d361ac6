"""Anthropic's messages: requests become chat completions, replies become content blocks and events."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Head
from leyden_gateway.protocols.messages import Messages
from leyden_gateway.reply import Reply

DIALECT = Messages()
HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}, "cache_control": {"type": "x"}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x"}}


def body(**fields: object) -> bytes:
    return json.dumps({"model": "policy", "max_tokens": 9, "messages": HELLO, **fields}).encode()


def messages(*turns: dict, **fields: object) -> list[dict]:
    return DIALECT.read(body(messages=turns, **fields)).fields["messages"]


def reply(finish: str = "stop", stop: object = None, **message: object) -> Reply:
    said = {"role": "assistant", "content": None, **message}
    return Reply(
        id="r1",
        created=7,
        message=msgspec.Raw(json.dumps(said).encode()),
        finish_reason=finish,
        usage=msgspec.Raw(b'{"prompt_tokens": 3, "completion_tokens": 2}'),
        prompt_ids=b"",
        response_ids=b"",
        logprobs=b"",
        stop_reason=stop,
    )


def call(arguments: str, id: str = "c1") -> dict:
    return {"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}}


def written(reply: Reply, **fields: object) -> dict:
    return json.loads(DIALECT.answer(DIALECT.read(body(**fields)), [reply]))


def streamed(reply: Reply, **fields: object) -> list[dict]:
    events = DIALECT.events(DIALECT.read(body(**fields)), Head("r1", 7, 3))
    raw = b"".join(events.piece(0, delta, None) for delta in reply.deltas()) + events.finish([reply])
    found = [event.split("\n") for event in raw.decode().strip().split("\n\n")]
    datas = [json.loads(data.removeprefix("data: ")) for _, data in found]
    assert [name.removeprefix("event: ") for name, _ in found] == [data["type"] for data in datas]
    return datas


def test_a_request_in_full():
    ask = DIALECT.read(
        body(stream=True, stop_sequences=["x"], temperature=0.5, top_p=0.9, top_k=4, metadata={"user_id": "u"})
    )
    assert (ask.model, ask.max_tokens, ask.stream, ask.temperature, ask.top_p) == ("policy", 9, True, 0.5, 0.9)
    assert ask.fields == {"messages": HELLO, "stop": ["x"], "top_k": 4}
    assert (ask.endpoint, ask.samples, ask.logprobs) == ("chat/completions", 1, False)


def test_system_blocks_are_joined_without_what_is_for_anthropic():
    blocks = [{"type": "text", "text": text} for text in ("x-anthropic-billing-header: 1", "Be ", "brief.")]
    assert messages(*HELLO, system=blocks) == [{"role": "system", "content": "Be brief."}, *HELLO]
    assert messages(*HELLO, system="Be brief.") == messages(*HELLO, system=blocks)
    assert messages(*HELLO, system=[]) == messages(*HELLO, system="") == HELLO


def test_tool_use_becomes_tool_calls_and_thinking_is_left_out():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "s"},
        {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
    ]
    (said, _) = messages({"role": "assistant", "content": blocks}, *HELLO)
    assert said == {"role": "assistant", "content": "Wait.", "tool_calls": [call('{"a":1}')]}
    (said, _) = messages({"role": "assistant", "content": blocks[3:]}, *HELLO)
    assert said["content"] is None


def test_results_become_tool_messages_and_text_stays_in_its_place():
    text = {"type": "text", "text": "95"}
    blocks = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "95"},
        {"type": "tool_result", "tool_use_id": "c2", "content": [text, text], "is_error": True},
        {"type": "tool_result", "tool_use_id": "c3"},
        {"type": "text", "text": "So?"},
        {"type": "text", "text": "Well?"},
    ]
    assert messages({"role": "user", "content": blocks}) == [
        {"role": "tool", "tool_call_id": "c1", "content": "95"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: 95\n95"},
        {"role": "tool", "tool_call_id": "c3", "content": ""},
        {"role": "user", "content": blocks[3:]},
    ]


def test_a_reply_that_the_agent_has_begun_is_continued():
    fields = DIALECT.read(body(messages=[*HELLO, {"role": "assistant", "content": "It is"}])).fields
    assert (fields["add_generation_prompt"], fields["continue_final_message"]) == (False, True)


@pytest.mark.parametrize(
    ("choice", "chat"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "add"}, {"tool_choice": {"type": "function", "function": {"name": "add"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
        (None, {}),
    ],
)
def test_tools_and_their_choice(choice, chat):
    fields = DIALECT.read(body(tools=[TOOL], tool_choice=choice)).fields
    function = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    assert fields == {"messages": HELLO, "tools": [{"type": "function", "function": function}], **chat}


def test_a_schema_for_the_output():
    fields = DIALECT.read(body(output_config={"effort": "low", "format": {"type": "json_schema", "schema": {}}})).fields
    assert fields["response_format"] == {"type": "json_schema", "json_schema": {"name": "output", "schema": {}}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mcp_servers": []}, "mcp_servers"),
        ({"n": 2}, "`n`"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "document"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [IMAGE]}]}]}, "image"),
        ({"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]}, "server_tool_use"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "role"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]}, "tool_use"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [{"name": "f"}]}, "input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "clear_tool_uses"),
        ({"output_config": {"format": {"type": "xml", "schema": {}}}}, "json_schema"),
    ],
)
def test_what_cannot_be_honoured_is_refused(fields, named):
    with pytest.raises(ApiError, match=named) as caught:
        DIALECT.read(body(**fields))
    assert caught.value.status == 400


def test_max_tokens_must_be_given_but_not_to_count():
    asked = json.dumps({"model": "policy", "messages": HELLO}).encode()
    assert DIALECT.read_to_count(asked).fields == {"messages": HELLO}
    with pytest.raises(ApiError, match="max_tokens"):
        DIALECT.read(asked)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "user", "text", "tool_use", "tool_result"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "input", "name", "edits"]), inner)
    ),
    max_leaves=12,
)
FIELDS = ["messages", "system", "tools", "tool_choice", "thinking", "output_config", "context_management", "stream"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_nothing_that_is_sent_breaks_the_reader(fields):
    try:
        DIALECT.read(body(**fields))
    except ApiError as error:
        assert error.status == 400


@pytest.mark.parametrize(
    ("reply", "stop"),
    [
        (reply(content="hi"), ("end_turn", None)),
        (reply("length", content="hi"), ("max_tokens", None)),
        (reply(stop="END", content="hi"), ("stop_sequence", "END")),
        (reply(stop=128, content="hi"), ("end_turn", None)),
        (reply("tool_calls", tool_calls=[call("{}")]), ("tool_use", None)),
        (reply("stop", tool_calls=[call("{}")]), ("tool_use", None)),
        (reply("content_filter", content=""), ("refusal", None)),
    ],
)
def test_why_a_reply_ended(reply, stop):
    message = written(reply)
    assert (message["stop_reason"], message["stop_sequence"]) == stop
    assert message["usage"] == {"input_tokens": 3, "output_tokens": 2}
    end = streamed(reply)[-2]
    assert (end["delta"]["stop_reason"], end["delta"]["stop_sequence"]) == stop
    assert end["usage"] == message["usage"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [('{"a": 1}', {"a": 1}), ("", {}), ("[1]", {"arguments": [1]}), ('{"a": ', {"arguments": '{"a": '})],
)
def test_arguments_are_always_an_object(arguments, found):
    said = reply("tool_calls", tool_calls=[call(arguments)])
    assert written(said)["content"] == [{"type": "tool_use", "id": "c1", "name": "add", "input": found}]
    (delta,) = [event["delta"] for event in streamed(said) if event["type"] == "content_block_delta"]
    assert json.loads(delta["partial_json"]) == found


def test_a_stream_opens_and_closes_each_block():
    said = reply("tool_calls", content="Wait.", tool_calls=[call("{}"), call("{}", "c2")])
    events = streamed(said)
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in events if "index" in event] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [event["content_block"]["type"] for event in events if "content_block" in event] == [
        "text",
        "tool_use",
        "tool_use",
    ]
    assert events[0]["message"]["usage"] == {"input_tokens": 3, "output_tokens": 0}


def test_an_empty_reply_is_a_whole_stream():
    assert [event["type"] for event in streamed(reply(content=""))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def test_thinking_is_shown_to_who_asked_for_it():
    said = reply(content="4", reasoning="2+2")
    assert [block["type"] for block in written(said)["content"]] == ["text"]
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert [block["type"] for block in written(said, thinking=enabled)["content"]] == ["thinking", "text"]
    starts = [e["content_block"]["type"] for e in streamed(said, thinking=enabled) if "content_block" in e]
    assert starts == ["thinking", "text"]
    assert [e["content_block"]["type"] for e in streamed(said) if "content_block" in e] == ["text"]


def test_errors():
    kinds = {429: "rate_limit_error", 413: "request_too_large", 503: "overloaded_error", 502: "api_error"}
    for status, kind in kinds.items():
        error = ApiError(status, "code", "why")
        assert json.loads(DIALECT.refuse(error)) == {"type": "error", "error": {"type": kind, "message": "why"}}
        event = DIALECT.events(DIALECT.read(body()), Head("r", 7, 3)).fail(error)
        assert event.startswith(b"event: error\ndata: ")
