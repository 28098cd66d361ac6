"""A replica that plays vLLM, and solves `What is 37+58?` with the tools that it is given, the same way each time.

It is also an OpenAI-compatible server that is not ours: nothing here needs the gateway. As a process:
`python scripted_engine.py PORT`.
"""

import json
import sys
from itertools import count

from aiohttp import web

RESULT = "95"


def said(ask: dict) -> dict:
    """Return the message that answers a chat request: the tool first, then a handover if there is one, then the sum."""
    tools = [tool["function"]["name"] for tool in ask.get("tools") or []]
    called = {call["function"]["name"] for message in ask["messages"] for call in message.get("tool_calls") or []}
    if "add" in tools and "add" not in called:
        return _call("add", {"a": 37, "b": 58})
    handover = next((name for name in tools if name.startswith("transfer_to_")), None)
    if handover:
        return _call(handover, {})
    system = " ".join(str(message["content"]) for message in ask["messages"] if message["role"] == "system")
    return {"content": f"APPROVED: {RESULT}" if "Check the answer" in system else f"The answer is {RESULT}."}


def completion(ask: dict, number: int) -> dict:
    """Return a completion whose token ids are the bytes of what was shown and of what is said."""
    message = said(ask)
    calls = message.get("tool_calls", [])
    text = json.dumps(calls[0]["function"]) if calls else message["content"]
    ids, prompt = list(text.encode()), list(json.dumps(ask["messages"]).encode())
    logprobs = [{"token": chr(id), "logprob": -0.25, "bytes": [id], "top_logprobs": []} for id in ids]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "refusal": None, **message},
        "logprobs": {"content": logprobs},
        "finish_reason": "tool_calls" if calls else "stop",
        "stop_reason": None,
        "token_ids": ids,
    }
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": ask["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)},
        "prompt_token_ids": prompt,
    }


def _call(name: str, arguments: dict) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": f"call-{name}", "type": "function", "function": function}]}


def app() -> web.Application:
    """Return the server."""
    numbers = count(1)

    async def chat(request: web.Request) -> web.Response:
        ask = await request.json()
        if ask.get("stream"):
            raise web.HTTPBadRequest(text="this server does not stream")
        return web.json_response(completion(ask, next(numbers)))

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    served = web.Application()
    served.add_routes([web.post("/v1/chat/completions", chat), web.get("/healthz", health)])
    return served


if __name__ == "__main__":
    web.run_app(app(), host="127.0.0.1", port=int(sys.argv[1]), print=None)
