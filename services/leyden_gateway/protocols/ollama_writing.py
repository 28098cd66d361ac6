"""The parts of Ollama's replies."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from leyden_gateway.ask import Ask
from leyden_gateway.protocols.translated import arguments_object, text_of, thought_of, usage_of
from leyden_gateway.reply import Reply

Shape = Callable[[dict[str, Any], bool], dict[str, Any]]
"""(message or delta of a chat completion, whether thinking is shown) -> the part of a reply that holds it."""


def chat_part(said: dict[str, Any], think: bool) -> dict[str, Any]:
    """Return the part of a chat's reply: `message`."""
    message: dict[str, Any] = {"role": "assistant", "content": text_of(said), **_thinking(said, think)}
    calls = said.get("tool_calls")
    return {"message": {**message, "tool_calls": [_call(*one) for one in enumerate(calls)]} if calls else message}


def generate_part(said: dict[str, Any], think: bool) -> dict[str, Any]:
    """Return the part of a generation's reply: `response`."""
    return {"response": text_of(said), **_thinking(said, think)}


def end_of(ask: Ask, reply: Reply) -> dict[str, Any]:
    """Return what says that a reply has ended, why, and what it took.

    The duration is the whole request's, in ns. Which part of it went into the prompt is not known here, so the other
    durations are left out; models are always loaded.
    """
    usage = usage_of(reply)
    return {
        "done": True,
        "done_reason": "length" if reply.finish_reason == "length" else "stop",
        "total_duration": time.perf_counter_ns() - ask.note.start_ns,
        "load_duration": 0,
        "prompt_eval_count": usage.prompt_tokens,
        "eval_count": usage.completion_tokens,
    }


def shown_logprobs(logprobs: msgspec.Raw | None) -> dict[str, Any]:
    """Return `logprobs`, if there are any to show. A chat completion's entries have Ollama's own fields."""
    found = None if logprobs is None else msgspec.json.decode(logprobs)
    return {"logprobs": found["content"]} if found else {}


def stamp(created: int) -> str:
    """Return a time, in seconds since the epoch, as RFC 3339 has it."""
    return datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")


def _thinking(said: dict[str, Any], think: bool) -> dict[str, str]:
    thought = thought_of(said)
    return {"thinking": thought} if thought and think else {}


def _call(index: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = arguments_object(function["arguments"])
    # In a stream each call comes in a delta of its own, which says which it is.
    place = call.get("index", index)
    return {"id": call["id"], "function": {"index": place, "name": function["name"], "arguments": arguments}}
