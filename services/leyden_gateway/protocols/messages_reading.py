"""Reads Anthropic's requests. What cannot be honoured is refused; what only helps Anthropic's own servers is dropped.

Dropped: `metadata`, `service_tier`, `inference_geo`, cache marks and the effort wished for; a model thinks as it was
made to. `thinking` decides whether the agent sees it.
"""

from typing import Any

import msgspec

from leyden_gateway.ask import Ask, refused
from leyden_gateway.protocols.fields import read_fields, read_object
from leyden_gateway.protocols.messages_turns import chat_messages

_Object = dict[str, Any]


class _Tool(msgspec.Struct):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: _Object | None = None
    strict: bool | None = None


class _Choice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool = False


class _Kind(msgspec.Struct):
    type: str


class _Format(_Kind):
    schema: _Object


class _Output(msgspec.Struct):
    format: _Format | None = None


class _Management(msgspec.Struct):
    edits: list[_Kind] = []


_READ: dict[str, msgspec.json.Decoder[Any]] = {
    "model": msgspec.json.Decoder(str),
    "messages": msgspec.json.Decoder(list[_Object]),
    "max_tokens": msgspec.json.Decoder(int),
    "system": msgspec.json.Decoder(str | list[_Object] | None),
    "stream": msgspec.json.Decoder(bool | None),
    "stop_sequences": msgspec.json.Decoder(list[str] | None),
    "temperature": msgspec.json.Decoder(float | None),
    "top_p": msgspec.json.Decoder(float | None),
    "top_k": msgspec.json.Decoder(int | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "tool_choice": msgspec.json.Decoder(_Choice | None),
    "thinking": msgspec.json.Decoder(_Kind | None),
    "output_config": msgspec.json.Decoder(_Output | None),
    "context_management": msgspec.json.Decoder(_Management | None),
}
_DROPPED = frozenset({"metadata", "service_tier", "inference_geo", "cache_control"})
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_ask(body: bytes, required: tuple[str, ...]) -> Ask:
    """Read a request that must have the fields `required`. Raises ApiError (400)."""
    fields = read_object(body)
    unknown = sorted(fields.keys() - _READ.keys() - _DROPPED)
    if unknown:
        raise refused(f"`{'` and `'.join(unknown)}` cannot be honoured here: leave it out")
    found = read_fields(fields, _READ, required)
    _check_edits(found.get("context_management"))
    chat: _Object = {"messages": chat_messages(found.get("system"), found["messages"])}
    if chat["messages"][-1]["role"] == "assistant":
        # The agent has begun the reply itself.
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    return Ask(
        model=found["model"],
        fields={**chat, **_options(found), **_tools(found.get("tools"), found.get("tool_choice"))},
        stream=bool(found.get("stream")),
        temperature=found.get("temperature"),
        top_p=found.get("top_p"),
        max_tokens=found.get("max_tokens"),
        note=(found.get("thinking") or _Kind("disabled")).type != "disabled",
    )


def _options(found: _Object) -> _Object:
    options = {
        "stop": found.get("stop_sequences") or None,
        "top_k": found.get("top_k"),
        "response_format": _format((found.get("output_config") or _Output()).format),
    }
    return {name: value for name, value in options.items() if value is not None}


def _format(given: _Format | None) -> _Object | None:
    if given is None:
        return None
    if given.type != "json_schema":
        raise refused("`output_config.format.type` must be `json_schema`")
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": given.schema}}


def _check_edits(management: _Management | None) -> None:
    """Only old thinking can be cleared, as it always is: no other edit of the conversation is done here."""
    for edit in management.edits if management else ():
        if not edit.type.startswith("clear_thinking"):
            raise refused(f"`context_management`: an edit of type `{edit.type}` cannot be honoured here")


def _tools(tools: list[_Tool] | None, choice: _Choice | None) -> _Object:
    if not tools:
        return {}
    fields: _Object = {"tools": [_tool(index, tool) for index, tool in enumerate(tools)]}
    if choice is None:
        return fields
    if choice.disable_parallel_tool_use:
        fields["parallel_tool_calls"] = False
    if choice.type == "tool":
        return {**fields, "tool_choice": {"type": "function", "function": {"name": choice.name}}}
    if choice.type not in _CHOICES:
        raise refused("`tool_choice.type` must be `auto`, `any`, `tool` or `none`")
    return {**fields, "tool_choice": _CHOICES[choice.type]}


def _tool(index: int, tool: _Tool) -> _Object:
    if tool.type not in (None, "custom"):
        raise refused(
            f"`tools[{index}]`: `{tool.type}` is a tool of Anthropic's own, which is not there; "
            "describe one with `input_schema`, and let the agent run it"
        )
    if tool.input_schema is None:
        raise refused(f"`tools[{index}].input_schema` must be given")
    given = {"name": tool.name, "description": tool.description, "strict": tool.strict}
    function = {name: value for name, value in given.items() if value is not None}
    return {"type": "function", "function": {**function, "parameters": tool.input_schema}}
