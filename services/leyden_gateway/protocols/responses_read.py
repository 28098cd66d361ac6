"""Reads a request of OpenAI's Responses API. What would change the reply and cannot be honoured is refused."""

from typing import Any

import msgspec

from leyden_gateway.ask import Ask, refused
from leyden_gateway.protocols.fields import Fields, is_given, read_fields, read_object
from leyden_gateway.protocols.responses_items import continues, messages

_OBJECT = msgspec.json.Decoder(dict[str, Any] | None)
_READ: dict[str, msgspec.json.Decoder[Any]] = {
    "model": msgspec.json.Decoder(str),
    "input": msgspec.json.Decoder(str | list[Any]),
    "instructions": msgspec.json.Decoder(str | None),
    "stream": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "include": msgspec.json.Decoder(list[str] | None),
    "max_output_tokens": msgspec.json.Decoder(int | None),
    "parallel_tool_calls": msgspec.json.Decoder(bool | None),
    "reasoning": _OBJECT,
    "temperature": msgspec.json.Decoder(float | None),
    "text": _OBJECT,
    "tool_choice": msgspec.json.Decoder(str | dict[str, Any] | None),
    "tools": msgspec.json.Decoder(list[Any] | None),
    "top_logprobs": msgspec.json.Decoder(int | None),
    "top_p": msgspec.json.Decoder(float | None),
    "truncation": msgspec.json.Decoder(str | None),
}
_PASSED = frozenset({
    "top_k", "min_p", "seed", "stop", "stop_token_ids", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "structured_outputs",
    "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "cache_salt", "priority", "vllm_xargs",
})  # fmt: skip
"""What vLLM's own endpoint takes beyond OpenAI's fields: the replica judges it."""
_HARMLESS = frozenset({
    "store", "metadata", "user", "safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "stream_options", "max_tool_calls", "request_id", "session_id",
})  # fmt: skip
"""None of these changes the reply: nothing is stored, and all tools are the agent's own."""
_WHOLE = "nothing is stored here: send the whole conversation in `input`"
_ADVICE = {
    "previous_response_id": _WHOLE,
    "conversation": _WHOLE,
    "prompt": "no prompts are stored here: send `instructions` and `input`",
}
LOGPROBS = "message.output_text.logprobs"
_FORMATS = ("text", "json_object", "json_schema")
_CHOICES = ("auto", "none", "required")
_MOST_LOGPROBS = 20


def read(body: bytes) -> Ask:
    """Read a request. Its note is what a response repeats of it. Raises ApiError (400)."""
    fields = read_object(body)
    found = read_fields(fields, _READ, ("model", "input"))
    _refuse(fields, found)
    tools = [_tool(tool, place) for place, tool in enumerate(found.get("tools") or [])]
    return Ask(
        model=found["model"],
        fields={
            "messages": messages(found.get("instructions"), found["input"]),
            **({"add_generation_prompt": False, "continue_final_message": True} if continues(found["input"]) else {}),
            **_tool_fields(found, tools),
            **_format(found.get("text") or {}),
            **_effort(found.get("reasoning") or {}),
            **_top_logprobs(found.get("top_logprobs")),
            **({"truncate_prompt_tokens": -1} if found.get("truncation") == "auto" else {}),
            **{name: value for name, value in fields.items() if name in _PASSED},
        },
        stream=bool(found.get("stream")),
        logprobs=LOGPROBS in (found.get("include") or []),
        temperature=found.get("temperature"),
        top_p=found.get("top_p"),
        max_tokens=found.get("max_output_tokens"),
        note=_repeated(fields),
    )


def _refuse(fields: Fields, found: dict[str, Any]) -> None:
    if found.get("background"):
        raise refused(f"`background` is not supported: {_WHOLE}, and wait for the answer")
    if found.get("truncation") not in (None, "auto", "disabled"):
        raise refused("`truncation` must be `auto` or `disabled`")
    for name in sorted(fields.keys() - _READ.keys() - _PASSED - _HARMLESS):
        if is_given(fields, name):
            raise refused(f"`{name}` is not supported: {_ADVICE.get(name, 'leave it out')}")


def _tool(tool: Any, place: int) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise refused(f"`tools[{place}]`: tools of type {kind!r} are not supported: give functions")
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise refused(f"`tools[{place}].name` must be given")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _tool_fields(found: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    choice = found.get("tool_choice")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise refused("`tool_choice` needs `tools`")
        return {}
    fields: dict[str, Any] = {"tools": tools}
    if choice is not None:
        fields["tool_choice"] = _choice(choice, [tool["function"]["name"] for tool in tools])
    if found.get("parallel_tool_calls") is not None:
        fields["parallel_tool_calls"] = found["parallel_tool_calls"]
    return fields


def _choice(choice: str | dict[str, Any], names: list[str]) -> str | dict[str, Any]:
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise refused(f"`tool_choice` must be one of {', '.join(_CHOICES)}, or name a function")
        return choice
    if choice.get("type") != "function":
        raise refused(f"`tool_choice` of type {choice.get('type')!r} is not supported: name a function")
    if choice.get("name") not in names:
        raise refused(f"`tool_choice` names {choice.get('name')!r}, which is not among `tools`")
    return {"type": "function", "function": {"name": choice["name"]}}


def _format(text: dict[str, Any]) -> dict[str, Any]:
    """Return `text.format` as chat's `response_format`."""
    if text.get("verbosity") not in (None, "medium"):
        raise refused("`text.verbosity` is not supported: say in `instructions` how long the answer should be")
    wanted = text.get("format")
    if wanted is None:
        return {}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in _FORMATS:
        raise refused(f"`text.format.type` must be one of {', '.join(_FORMATS)}")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    if not isinstance(wanted.get("schema"), dict) or not isinstance(wanted.get("name"), str):
        raise refused("`text.format` needs a `name` and a `schema`")
    schema = {name: value for name, value in wanted.items() if name != "type"}
    return {"response_format": {"type": kind, "json_schema": schema}}


def _effort(reasoning: dict[str, Any]) -> dict[str, Any]:
    effort = reasoning.get("effort")
    return {} if effort is None else {"reasoning_effort": effort}


def _top_logprobs(count: int | None) -> dict[str, Any]:
    if count is None:
        return {}
    if not 0 <= count <= _MOST_LOGPROBS:
        raise refused(f"`top_logprobs` must be from 0 to {_MOST_LOGPROBS}")
    return {"top_logprobs": count}


def _repeated(fields: Fields) -> dict[str, Any]:
    """Return what a response says of its request: as it was sent, or what OpenAI takes it to be."""
    taken: dict[str, Any] = {
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
    sent = {name: fields[name] for name in taken if is_given(fields, name)}
    return {**taken, **sent, "background": False, "previous_response_id": None, "store": False}
