"""A replica that plays vLLM, and solves `What is 37+58?` with the tools that an agent gives it, the same way each time."""

import json
from itertools import count

from aiohttp import web

from support.gateway import Engine

RESULT = "95"


def said(ask: dict) -> dict:
    """Return the message that answers a chat request: the tool first, then a handover if there is one, then the sum."""
    tools = {tool["function"]["name"]: tool["function"] for tool in ask.get("tools") or []}
    called = {
        call["function"]["name"] for message in ask["messages"] for call in message.get("tool_calls") or []
    }
    if "add" in tools and "add" not in called:
        return _call("add", {"a": 37, "b": 58})
    for name in tools:
        if name.startswith("transfer_to_") and name not in called:
            return _call(name, {})
    system = " ".join(str(message["content"]) for message in ask["messages"] if message["role"] == "system")
    checks = "heck" in system or "checker" in system
    return {"content": f"APPROVED: {RESULT}" if checks else f"The answer is {RESULT}.", "tool_calls": []}


def _call(name: str, arguments: dict) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": f"call-{name}", "type": "function", "function": function}]}


class ScriptedEngine(Engine):
    """Its token ids are the bytes of what it was shown and of what it says."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._numbers = count(1)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = await request.json()
        self.asked.append(ask)
        body = self._completion(ask)
        return await self.stream(request, body) if ask.get("stream") else self.reply(body)

    def _completion(self, ask: dict) -> dict:
        message = said(ask)
        text = message["content"] or json.dumps(message["tool_calls"][0]["function"])
        ids, prompt = list(text.encode()), list(json.dumps(ask["messages"]).encode())
        logprobs = [{"token": chr(id), "logprob": -0.25, "bytes": [id], "top_logprobs": []} for id in ids]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "refusal": None, **message},
            "logprobs": {"content": logprobs},
            "finish_reason": "tool_calls" if message["tool_calls"] else "stop",
            "stop_reason": None,
            "token_ids": ids,
        }
        used = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        return {
            "id": f"chatcmpl-{next(self._numbers)}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": ask["model"],
            "choices": [choice],
            "usage": used,
            "prompt_token_ids": prompt,
        }
