"""Ollama's chat and generate: requests become chat completions, replies become lines of JSON."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Head
from leyden_gateway.protocols.ollama import OllamaChat, OllamaGenerate
from leyden_gateway.reply import Reply

CHAT, GENERATE = OllamaChat(), OllamaGenerate()
HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def chat(**fields: object):
    return CHAT.read(json.dumps({"model": "policy", "messages": HELLO, **fields}).encode())


def generate(**fields: object):
    return GENERATE.read(json.dumps({"model": "policy", "prompt": "hello", **fields}).encode())


def reply(finish: str = "stop", logprobs: dict | None = None, **message: object) -> Reply:
    return Reply(
        id="r1",
        created=1_700_000_000,
        message=msgspec.Raw(json.dumps({"role": "assistant", "content": None, **message}).encode()),
        finish_reason=finish,
        usage=msgspec.Raw(b'{"prompt_tokens": 3, "completion_tokens": 2}'),
        prompt_ids=b"",
        response_ids=b"",
        logprobs=b"",
        shown_logprobs=msgspec.Raw(json.dumps(logprobs).encode()) if logprobs else None,
    )


def call(arguments: str) -> dict:
    return {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}


def streamed(dialect, ask, said: Reply) -> list[dict]:
    events = dialect.events(ask, Head("r1", 7, 3))
    raw = b"".join(events.piece(0, delta, None) for delta in said.deltas()) + events.finish([said])
    return [json.loads(line) for line in raw.splitlines()]


def test_options_get_vllms_names():
    options = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 4, "num_predict": 9, "seed": 1, "stop": ["x"], "min_p": 0.1,
        "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3, "num_ctx": 4096, "num_gpu": 1,
    }  # fmt: skip
    ask = chat(options=options, keep_alive=-1, think=None)
    assert (ask.temperature, ask.top_p, ask.max_tokens) == (0.5, 0.9, 9)
    assert ask.fields == {
        "messages": HELLO, "top_k": 4, "seed": 1, "stop": ["x"], "min_p": 0.1, "repetition_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": 0.3,
    }  # fmt: skip


def test_a_stream_is_the_default():
    assert (chat().stream, chat(stream=True).stream, chat(stream=False).stream) == (True, True, False)


@pytest.mark.parametrize("endless", [-1, -2])
def test_no_limit(endless):
    assert chat(options={"num_predict": endless}).max_tokens is None


def test_a_tag_is_no_part_of_a_models_name_but_of_leydens():
    models = {"policy:latest": "policy", "leyden/run:latest": "leyden/run:latest", "a:7b": "a:7b"}
    assert {name: chat(model=name).model for name in models} == models


def test_formats():
    assert chat(format="json").fields["response_format"] == {"type": "json_object"}
    assert chat(format={"a": 1}).fields["response_format"]["json_schema"] == {"name": "format", "schema": {"a": 1}}
    assert "response_format" not in chat(format="").fields


def test_results_find_their_calls():
    """By id, by name, and in order."""
    calls = [{"function": {"name": name, "arguments": {"a": 1}}} for name in ("f", "g", "f")]
    said = {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [*calls, {**calls[0], "id": "own"}]}
    results = [{"role": "tool", "content": "x", **named} for named in ({"tool_name": "g"}, {}, {"tool_call_id": "own"})]
    turns = chat(messages=[*HELLO, said, *results], tools=[TOOL]).fields["messages"]
    assert [one["id"] for one in turns[1]["tool_calls"]] == ["call_1", "call_2", "call_3", "own"]
    assert turns[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert "thinking" not in turns[1]
    assert [turn["tool_call_id"] for turn in turns[2:]] == ["call_2", "call_1", "own"]


def test_a_prompt_is_what_a_user_says_or_raw_text():
    ask = generate(system="Be brief.", context=[])
    assert ask.fields["messages"] == [{"role": "system", "content": "Be brief."}, *HELLO]
    ask = generate(raw=True)
    assert (ask.endpoint, ask.fields) == ("completions", {"prompt": "hello"})


@pytest.mark.parametrize(
    ("read", "fields", "named"),
    [
        (chat, {"messages": []}, "messages"),
        (chat, {"messages": [{"role": "user", "content": "?", "images": ["aGk="]}]}, "images"),
        (chat, {"messages": [{"role": "tool", "content": "x"}]}, "tool"),
        (chat, {"messages": [{"role": "assistant", "tool_calls": 3}]}, "tool_calls"),
        (chat, {"options": {"mirostat": 2}}, "mirostat"),
        (chat, {"options": {"temperature": "hot"}}, "temperature"),
        (chat, {"options": {"num_predict": 0}}, "max_tokens"),
        (chat, {"format": "xml"}, "format"),
        (chat, {"n": 2}, "`n`"),
        (generate, {"prompt": ""}, "prompt"),
        (generate, {"template": "{{ .Prompt }}"}, "template"),
        (generate, {"suffix": "x"}, "suffix"),
        (generate, {"context": [1, 2]}, "context"),
        (generate, {"images": ["aGk="]}, "images"),
        (generate, {"raw": True, "system": "Be brief."}, "system"),
        (generate, {"raw": True, "logprobs": True}, "logprobs"),
    ],
)
def test_what_cannot_be_honoured_is_refused(read, fields, named):
    with pytest.raises(ApiError, match=named) as caught:
        read(**fields)
    assert caught.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "user", "tool", "assistant", "json"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "function", "name", "stop", "top_p"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["messages", "tools", "options", "format", "think", "logprobs"]), JSON))
def test_nothing_that_is_sent_breaks_the_reader(fields):
    try:
        chat(**fields)
    except ApiError as error:
        assert error.status == 400


def test_a_reply_in_full():
    said = reply("tool_calls", {"content": [{"token": "a", "logprob": -1.0}]}, content="Wait.", tool_calls=[call("{}")])
    found = json.loads(CHAT.answer(chat(), [said]))
    duration = found.pop("total_duration")
    assert duration > 0
    function = {"index": 0, "name": "add", "arguments": {}}
    assert found == {
        "model": "policy",
        "created_at": "2023-11-14T22:13:20Z",
        "message": {"role": "assistant", "content": "Wait.", "tool_calls": [{"id": "c1", "function": function}]},
        "done": True,
        "done_reason": "stop",
        "load_duration": 0,
        "prompt_eval_count": 3,
        "eval_count": 2,
        "logprobs": [{"token": "a", "logprob": -1.0}],
    }
    assert json.loads(GENERATE.answer(generate(), [reply("length", content="Hi")]))["done_reason"] == "length"


def test_a_stream_is_lines_that_add_up():
    said = reply("tool_calls", content="Wait.", tool_calls=[call('"x"'), call('{"a": 1}')])
    lines = streamed(CHAT, chat(), said)
    assert [line["done"] for line in lines] == [False, False, False, True]
    calls = [call["function"] for line in lines for call in line["message"].get("tool_calls", [])]
    assert [(call["index"], call["arguments"]) for call in calls] == [(0, {"arguments": "x"}), (1, {"a": 1})]
    assert "".join(line["response"] for line in streamed(GENERATE, generate(), reply(content="Hi"))) == "Hi"


def test_thinking_is_shown_to_who_asked_for_it():
    said = reply(content="4", reasoning="2+2")
    for think, shown in ((True, "2+2"), (False, "")):
        lines = streamed(CHAT, chat(think=think), said)
        assert "".join(line["message"].get("thinking", "") for line in lines) == shown
        assert json.loads(GENERATE.answer(generate(think=think), [said])).get("thinking", "") == shown
    assert len(streamed(CHAT, chat(), said)) == 2


def test_errors():
    error = ApiError(404, "code", "why")
    assert json.loads(CHAT.refuse(error)) == {"error": "why"}
    assert CHAT.events(chat(), Head("r", 7, 3)).fail(error) == b'{"error":"why"}\n'
