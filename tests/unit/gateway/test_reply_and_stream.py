"""A reply becomes exact bytes for the record, and a stream that adds up to the message."""

import json

import msgspec
import pytest

from leyden_gateway.answers import whole
from leyden_gateway.errors import ApiError
from leyden_gateway.protocols.chat import Chat
from leyden_gateway.reply import Reply, read_reply
from leyden_traces import pack_ids, pack_logprobs


def answer(message: dict | None = None, **choice: object) -> bytes:
    body = {
        "id": "c1",
        "created": 7,
        "prompt_token_ids": [1, 2],
        "usage": {"completion_tokens": 2, "prompt_tokens": 2, "total_tokens": 4},
        "choices": [
            {
                "message": message or {"role": "assistant", "content": "hi"},
                "finish_reason": "stop",
                "token_ids": [3, 4],
                "logprobs": {"content": [{"token": "h", "logprob": -0.1}, {"token": "i", "logprob": -0.2}]},
                **choice,
            }
        ],
    }
    return json.dumps(body).encode()


def streamed(reply: Reply, model: str, include_usage: bool) -> bytes:
    options = {"include_usage": include_usage}
    ask = Chat().read(json.dumps({"model": model, "messages": [], "stream": True, "stream_options": options}).encode())
    return whole(Chat(), ask, [reply], "request").body


def chunks(body: bytes) -> list[dict]:
    *events, end = body.decode().removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_the_record_is_what_the_replica_wrote():
    reply = read_reply(answer(), show_logprobs=False)
    assert (reply.prompt_ids, reply.response_ids) == (pack_ids([1, 2]), pack_ids([3, 4]))
    assert reply.logprobs == pack_logprobs([-0.1, -0.2])


def test_the_agents_message_is_the_replicas_own_text():
    message = {"role": "assistant", "content": "é\n", "tool_calls": [], "reasoning": "hm", "new_field": [1]}
    shown = json.loads(
        Chat().answer(
            Chat().read(b'{"model": "mine", "messages": []}'), [read_reply(answer(message), show_logprobs=False)]
        )
    )
    assert shown["choices"][0]["message"] == message
    assert (shown["model"], shown["choices"][0]["logprobs"], shown["usage"]["total_tokens"]) == ("mine", None, 4)
    assert set(shown) == {"id", "object", "created", "model", "choices", "usage"}


def test_a_stream_adds_up_to_the_message():
    calls = [
        {"id": f"call-{i}", "type": "function", "function": {"name": "f", "arguments": f'{{"x": {i}}}'}}
        for i in range(2)
    ]
    message = {"role": "assistant", "content": "let me see", "reasoning": "hm", "tool_calls": calls}
    found = chunks(streamed(read_reply(answer(message), False), "mine", include_usage=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in found[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content") or "" for delta in deltas) == "let me see"
    assert [delta["reasoning"] for delta in deltas if "reasoning" in delta] == ["hm"]
    parts = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert parts == [{"index": i, **call} for i, call in enumerate(calls)]
    assert [chunk["choices"][0]["finish_reason"] for chunk in found[:-1]] == [None] * (len(deltas) - 1) + ["stop"]
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 4
    assert {chunk["object"] for chunk in found} == {"chat.completion.chunk"}


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_message_streams_too(content):
    body = streamed(read_reply(answer({"role": "assistant", "content": content}), True), "m", False)
    found = chunks(body)
    assert [chunk["choices"][0]["delta"] for chunk in found] == [{"role": "assistant", "content": content}, {}]
    assert [entry["logprob"] for entry in found[0]["choices"][0]["logprobs"]["content"]] == [-0.1, -0.2]
    assert "usage" not in found[0]


def test_a_truncated_reply_is_an_error_and_no_crash():
    whole = answer()
    for end in range(0, len(whole), 7):
        with pytest.raises(ApiError, match="cannot be recorded"):
            read_reply(whole[:end], False)


def test_a_reply_keeps_its_logprobs_to_the_last_bit():
    exact = msgspec.json.decode(b"-0.30102998018264771")
    reply = read_reply(answer(logprobs={"content": [{"logprob": exact}, {"logprob": 0.0}]}), False)
    assert reply.logprobs == pack_logprobs([exact, 0.0])
