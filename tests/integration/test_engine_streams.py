"""Streamed replies of the engine: the same reply as the plain one, while it is being written."""
# ruff: noqa: F811 (fixtures are imported by name)

import json
from typing import Any

import httpx
import pytest

from integration.test_engine_http import ADD, CHAT, engine, folder, http, tokens  # noqa: F401

EXACT = {**CHAT, "temperature": 0, "logprobs": True, "return_token_ids": True}


async def events(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line:
                found.append(line.removeprefix("data: "))
    assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


def joined(chunks: list[dict[str, Any]], *path: str) -> list[Any]:
    out: list[Any] = []
    for chunk in chunks:
        found: Any = chunk["choices"][0] if chunk["choices"] else {}
        for name in path:
            found = (found or {}).get(name)
        out += found or []
    return out


@pytest.mark.parametrize("stop", [None, "and", ["tool_call", "zzz"]])
async def test_a_streamed_chat_adds_up_to_the_plain_one(http: httpx.AsyncClient, stop: Any) -> None:
    body = {**EXACT, "messages": [{"role": "user", "content": "Tell me"}], "stop": stop}
    plain = (await http.post("/v1/chat/completions", json=body)).json()
    chunks = await events(http, "/v1/chat/completions", body)
    prompt, response, logprobs = tokens(plain)
    assert len(chunks) >= 3, "pieces, the end, the usage"
    assert chunks[0]["prompt_token_ids"] == prompt
    assert joined(chunks, "token_ids") == response
    assert [entry["logprob"] for entry in joined(chunks, "logprobs", "content")] == pytest.approx(logprobs, abs=1e-5)
    (choice,) = plain["choices"]
    assert "".join(joined(chunks, "delta", "content")) == choice["message"]["content"]
    end = chunks[-2]["choices"][0]
    assert (end["finish_reason"], end["stop_reason"]) == (choice["finish_reason"], choice["stop_reason"])
    assert chunks[-1]["usage"] == plain["usage"]


async def test_a_streamed_completion_adds_up_to_the_plain_one(http: httpx.AsyncClient) -> None:
    body = {"model": "base", "prompt": "What is", "max_tokens": 20, "temperature": 0, "logprobs": 2}
    body["return_token_ids"] = True
    (plain,) = (await http.post("/v1/completions", json=body)).json()["choices"]
    chunks = await events(http, "/v1/completions", body)
    assert "".join(joined(chunks, "text")) == plain["text"]
    assert joined(chunks, "token_ids") == plain["token_ids"]
    assert joined(chunks, "prompt_token_ids") == plain["prompt_token_ids"]
    assert joined(chunks, "logprobs", "tokens") == plain["logprobs"]["tokens"]
    assert joined(chunks, "logprobs", "text_offset") == plain["logprobs"]["text_offset"]


async def test_tool_calls_are_streamed_when_they_are_known(http: httpx.AsyncClient) -> None:
    chunks = await events(http, "/v1/chat/completions", {**EXACT, "tools": [ADD]})
    (call,) = joined(chunks, "delta", "tool_calls")
    assert (call["index"], json.loads(call["function"]["arguments"])) == (0, {"a": 37, "b": 58})
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_what_is_refused_is_refused_before_the_stream(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/chat/completions", json={**CHAT, "stream": True, "model": "nobody"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, 404)
