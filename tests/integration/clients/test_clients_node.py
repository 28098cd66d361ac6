"""OpenAI's client for Node before the gateway."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "node"


async def node(agent, action: str) -> Any:
    """Return what `agent.mjs` printed."""
    assert (FOLDER / "node_modules").is_dir(), "run `just servers` first"
    child = await asyncio.create_subprocess_exec(
        "node",
        str(FOLDER / "agent.mjs"),
        action,
        env={**os.environ, **agent.environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            said, wrong = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    assert child.returncode == 0, wrong.decode()
    return json.loads(said)


async def test_node_chat(agent):
    reply = await node(agent, "chat")
    assert reply["choices"][0]["finish_reason"] == "length"
    await agent.recorded(1, reply["usage"]["completion_tokens"])


async def test_node_stream(agent):
    *chunks, last = await node(agent, "chat_stream")
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert len(chunks) >= 2
    await agent.recorded(1, last["usage"]["completion_tokens"])


async def test_node_tools(agent):
    whole, streamed = await node(agent, "tools"), await node(agent, "tools_stream")
    for reply in (whole, streamed):
        (called,) = reply["choices"][0]["message"]["tool_calls"]
        assert json.loads(called["function"]["arguments"]) == {"expression": "37 + 58"}
    await agent.recorded(2, whole["usage"]["completion_tokens"] + streamed["usage"]["completion_tokens"])


async def test_node_completions(agent):
    reply = await node(agent, "completions")
    await agent.recorded(1, reply["usage"]["completion_tokens"])


async def test_node_responses(agent):
    whole, streamed = await node(agent, "responses"), await node(agent, "responses_stream")
    for reply in (whole, streamed):
        called = reply["output"][-1]
        assert (called["name"], json.loads(called["arguments"])) == ("calculator", {"expression": "37 + 58"})
        assert reply["status"] == "completed"
    await agent.recorded(2, whole["usage"]["output_tokens"] + streamed["usage"]["output_tokens"])


async def test_node_json_schema(played):
    reply = await node(played, "json_schema")
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"answer": 95}
    await played.recorded(1, reply["usage"]["completion_tokens"])


async def test_node_errors(agent):
    errors = await node(agent, "errors")
    assert [error["status"] for error in errors] == [404, 400, 400]
    assert "nobody" in errors[0]["message"]
    assert "send the whole conversation" in errors[1]["message"]
    assert "several prompts" in errors[2]["message"]
    await agent.recorded(0, 0)
