"""What cannot be honoured is refused with a message that names the field."""

import json

import pytest

from leyden_engine.errors import EngineError
from leyden_engine.protocol import ChatRequest, CompletionRequest, plain_messages, read

CHAT = {"model": "base", "messages": [{"role": "user", "content": "hi"}]}


def refusal(body: object, kind: type = ChatRequest) -> EngineError:
    with pytest.raises(EngineError) as caught:
        read(kind, json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("temperature", -1),
        ("top_p", 0),
        ("max_tokens", 0),
        ("top_k", 5),
        ("presence_penalty", 0.5),
        ("repetition_penalty", 1.1),
        ("logit_bias", {"5": 1}),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("guided_json", {}),
        ("prompt_logprobs", 99),
    ],
)
def test_what_would_change_the_reply_is_refused(field: str, value: object) -> None:
    error = refusal({**CHAT, field: value})
    assert field in error.message and (error.param or "").startswith(field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("stream", False),
        ("presence_penalty", 0.0),
        ("top_k", -1),
        ("logit_bias", {}),
        ("logit_bias", None),
        ("tool_choice", "auto"),
        ("response_format", {"type": "text"}),
        ("user", "somebody"),
        ("metadata", {"a": "b"}),
    ],
)
def test_what_changes_nothing_is_accepted(field: str, value: object) -> None:
    assert read(ChatRequest, json.dumps({**CHAT, field: value}).encode()).model == "base"


def test_broken_bodies() -> None:
    for body in (b"", b"{", b"[]", b"\xff"):
        with pytest.raises(EngineError) as caught:
            read(ChatRequest, body)
        assert caught.value.status == 400
    assert refusal({"messages": CHAT["messages"]}).param == "model"
    assert "role" in refusal({**CHAT, "messages": [{"content": "hi"}]}).message
    assert "tools[0]" in refusal({**CHAT, "tools": [{"type": "function"}]}).message
    assert refusal({"model": "base", "prompt": [-1]}, CompletionRequest)
    assert refusal({"model": "base", "prompt": [[1], [2]]}, CompletionRequest)


def test_messages_become_what_templates_expect() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    plain = plain_messages(
        [
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
    )
    assert plain[0]["content"] == "one\ntwo"
    broken = {"function": {"name": "add", "arguments": "{"}}
    (kept,) = plain_messages([{"role": "assistant", "tool_calls": [broken]}])
    assert kept["tool_calls"] == [broken]
    assert plain[1]["content"] == "" and plain[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": 3},
        {"role": "assistant", "tool_calls": ["add"]},
        {"role": "assistant", "tool_calls": 3},
    ],
)
def test_messages_that_no_template_can_take(message: dict) -> None:
    with pytest.raises(EngineError) as caught:
        plain_messages([message])
    assert caught.value.status == 400
