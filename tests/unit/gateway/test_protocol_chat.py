"""OpenAI's chat completions: what is read, what is passed on, what a stream says."""

import json

import pytest

from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.base import Head
from leyden_gateway.protocols.chat import Chat
from support.protocols import events, read, reply, streamed

MESSAGES = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def test_null_fields_are_as_if_left_out():
    fields = (
        "tools",
        "stop",
        "seed",
        "n",
        "temperature",
        "max_tokens",
        "logprobs",
        "stream_options",
        "response_format",
    )
    ask = read(Chat(), messages=MESSAGES, stream=True, **dict.fromkeys(fields))
    assert set(ask.fields) == {"messages"}
    assert (ask.live, ask.samples, ask.logprobs, ask.max_tokens) == (True, 1, False, None)
    assert not read(Chat(), messages=MESSAGES, stream=True, tools=TOOLS).live


def test_a_seed_is_a_number():
    assert read(Chat(), messages=MESSAGES, seed=2**70).fields["seed"] == 2**70
    with pytest.raises(ApiError, match="seed"):
        read(Chat(), messages=MESSAGES, seed="x")


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_adds_up_to_the_message(usage):
    ask = read(Chat(), messages=MESSAGES, stream=True, stream_options={"include_usage": usage})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "let me see", "tool_calls": [call]}
    chunks = streamed(Chat(), ask, reply(message, finish_reason="tool_calls"))
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == "let me see"
    assert [choice["delta"]["tool_calls"] for choice in choices if "tool_calls" in choice["delta"]] == [
        [{"index": 0, **call}]
    ]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["tool_calls"]
    assert (chunks[-1].get("usage") or {}).get("total_tokens") == (4 if usage else None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 502])
def test_errors_are_openais(status):
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 502: "server_error"}
    error = {"message": "why", "type": kinds.get(status, "invalid_request_error"), "param": None, "code": "c"}
    told = ApiError(status, "c", "why")
    assert json.loads(Chat().refuse(told)) == {"error": error}
    writer = Chat().events(read(Chat(), messages=MESSAGES), Head("c1", 7, 2))
    assert events(writer.fail(told)) == [{"error": error}]
