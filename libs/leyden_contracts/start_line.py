"""A line of uploaded start data, as OpenAI, Hugging Face and TRL write them: read, checked, and written in one form."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from leyden_contracts.reading import BadTask, fault_lines

Messages = list[dict[str, Any]]
Text = str | Messages
"""Plain text, or chat messages."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class BadStartLine(BadTask):
    """A line of start data that cannot be accepted."""


class _Line(BaseModel):
    # What else a data set has in its rows is nothing to us: exported conversations say where they are from.
    model_config = ConfigDict(frozen=True, extra="ignore")

    tools: list[dict[str, Any]] | None = None
    """Functions that the assistant may call, as a chat template takes them."""
    role: str | None = None
    """The trained role that learns this; None: all of them."""


class SftLine(_Line):
    """A conversation, cut in two: what was shown, and what is learned of what follows: each turn of the assistant."""

    prompt: Text
    completion: Text

    @model_validator(mode="before")
    @classmethod
    def _one_form(cls, line: Any) -> Any:
        line = _mapping(line)
        if ("messages" in line) == ("prompt" in line or "completion" in line):
            raise ValueError("give `messages`, or `prompt` and `completion`")
        if "messages" in line:
            return {**line, "prompt": [], "completion": _messages(line["messages"], "messages")}
        return _plain(line, "prompt", "completion")

    @model_validator(mode="after")
    def _teaches(self) -> Self:
        _check_alike(self.prompt, self.completion)
        _check_speaks(self.completion, "the conversation" if self.prompt == [] else "`completion`")
        return self


class DpoLine(_Line):
    """A prompt with two answers, of which one is the better."""

    prompt: Text
    chosen: Text
    rejected: Text

    @model_validator(mode="before")
    @classmethod
    def _one_form(cls, line: Any) -> Any:
        line = _mapping(line)
        if "messages" in line:
            if "prompt" in line:
                raise ValueError("`messages` is another name of `prompt`: give one of them")
            line = {**line, "prompt": _messages(line["messages"], "messages")}
        line = _plain(line, "prompt", "chosen", "rejected")
        if "prompt" not in line and isinstance(line.get("chosen"), list) and isinstance(line.get("rejected"), list):
            line = _without_common(line)
        return line

    @model_validator(mode="after")
    def _teaches(self) -> Self:
        for name in ("chosen", "rejected"):
            _check_alike(self.prompt, getattr(self, name))
            _check_speaks(getattr(self, name), f"`{name}`")
        if self.chosen == self.rejected:
            raise ValueError("`chosen` and `rejected` are the same: there is nothing to prefer")
        return self


LINES: dict[Literal["sft", "dpo"], type[SftLine] | type[DpoLine]] = {"sft": SftLine, "dpo": DpoLine}


def start_line(raw: bytes | Any, kind: Literal["sft", "dpo"], roles: Collection[str]) -> bytes:
    """Return the stored line, without its end, of what is in `raw`: a line of JSON, or a parsed value.

    `roles` are the run's trained ones. Raises BadStartLine.
    """
    try:
        shape = LINES[kind]
        line = shape.model_validate(json.loads(raw) if isinstance(raw, bytes) else raw)
        text = json.dumps(line.model_dump(exclude_none=True), ensure_ascii=False, allow_nan=False)
        # JSON can hold half a surrogate pair; UTF-8 cannot.
        stored = text.encode()
    except ValidationError as error:
        raise BadStartLine([_unprefixed(line) for line in fault_lines(error.errors(include_url=False))]) from error
    except (ValueError, RecursionError) as error:
        raise BadStartLine([f"not JSON: {error}"]) from error
    if line.role is not None and line.role not in roles:
        raise BadStartLine([f"role: {line.role!r} is none of this run's trained roles: {', '.join(sorted(roles))}"])
    return stored


def _unprefixed(fault: str) -> str:
    return fault.removeprefix("Value error, ")


def _mapping(line: Any) -> Mapping[str, Any]:
    if not isinstance(line, Mapping):
        raise ValueError("a line is a JSON object")
    return line


def _plain(line: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the line with the named texts as they are stored; a text beside messages becomes a message."""
    found = {**line, **{name: _text(line[name], name) for name in names if name in line}}
    if any(isinstance(found.get(name), list) for name in names):
        for name in names:
            if isinstance(found.get(name), str):
                found[name] = [{"role": "user" if name == "prompt" else "assistant", "content": found[name]}]
    return found


def _text(value: Any, name: str) -> Text:
    return value if isinstance(value, str) else _messages(value, name)


def _messages(value: Any, name: str) -> Messages:
    if not isinstance(value, list):
        raise ValueError(f"{name}: give a list of messages")
    return [_message(message, f"{name}.{i}") for i, message in enumerate(value)]


def _message(message: Any, where: str) -> dict[str, Any]:
    """Return a message as chat templates take it: content is a text, a tool's arguments are an object."""
    if not isinstance(message, Mapping):
        raise ValueError(f"{where}: a message is an object with `role` and `content`")
    if message.get("role") not in _ROLES:
        raise ValueError(f"{where}.role: {message.get('role')!r} is none of {', '.join(_ROLES)}")
    # Tables write None where a message has no such field; templates ask whether there is one.
    kept = {name: value for name, value in message.items() if value is not None}
    kept["content"] = _content(kept.get("content", ""), where)
    if "tool_calls" in kept:
        if not isinstance(kept["tool_calls"], list):
            raise ValueError(f"{where}.tool_calls: give a list")
        kept["tool_calls"] = [_tool_call(call, where) for call in kept["tool_calls"]]
    return kept


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    if all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts):
        return "".join(str(part.get("text", "")) for part in parts)
    raise ValueError(f"{where}.content: give a text; models that see or hear are not trained here")


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where}.tool_calls: each has a `function` with a `name`")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError as error:
            raise ValueError(f"{where}.tool_calls: `arguments` is no JSON: {error}") from error
    named = {"name": function["name"], "arguments": {} if arguments is None else arguments}
    return {**{key: call[key] for key in ("id",) if call.get(key)}, "type": "function", "function": named}


def _without_common(line: dict[str, Any]) -> dict[str, Any]:
    """Take what both answers begin with for the prompt."""
    chosen, rejected = line["chosen"], line["rejected"]
    pairs = enumerate(zip(chosen, rejected, strict=False))
    same = next((i for i, (one, other) in pairs if one != other), min(len(chosen), len(rejected)))
    return {**line, "prompt": chosen[:same], "chosen": chosen[same:], "rejected": rejected[same:]}


def _check_alike(prompt: Text, answer: Text) -> None:
    if isinstance(prompt, str) and not prompt:
        raise ValueError("`prompt` is empty")
    if isinstance(prompt, str) != isinstance(answer, str):
        raise ValueError("texts and messages cannot be mixed")
    if not prompt and isinstance(answer, list) and answer and answer[0]["role"] == "assistant":
        raise ValueError("the assistant speaks first: begin with what it was shown")


def _check_speaks(answer: Text, name: str) -> None:
    if isinstance(answer, str):
        if not answer:
            raise ValueError(f"{name} is empty")
    elif not any(message["role"] == "assistant" for message in answer):
        raise ValueError(f"{name} has no turn of the assistant: there is nothing to learn")


__all__ = ["LINES", "BadStartLine", "DpoLine", "Messages", "SftLine", "Text", "start_line"]
