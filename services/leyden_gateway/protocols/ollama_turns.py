"""A conversation in Ollama's messages, as chat messages: tool calls have ids there."""

from typing import Any

import msgspec

from leyden_gateway.ask import refused

_Object = dict[str, Any]


class _Function(msgspec.Struct):
    name: str
    arguments: _Object = {}


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


def chat_messages(turns: list[_Object]) -> list[_Object]:
    """Return the turns as chat messages. Thinking is left out. Raises ApiError (400)."""
    if not turns:
        raise refused("`messages` must not be empty: models need no loading")
    calls = _Calls()
    return [_turn(turn, calls, f"messages[{index}]") for index, turn in enumerate(turns)]


class _Calls:
    """The tool calls so far, and which of them have no result yet."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[tuple[str, str]] = []
        """Name and id."""

    def add(self, name: str, id: str | None) -> str:
        """Enter a call; return its id."""
        self._count += 1
        self._waiting.append((name, id or f"call_{self._count}"))
        return self._waiting[-1][1]

    def resolve(self, id: str | None, name: str | None) -> str:
        """Return the id of the call whose result has come: as given, by the tool's name, or the first that waits."""
        by_id = [one for one in self._waiting if one[1] == id]
        by_name = [one for one in self._waiting if one[0] == name]
        found = next(iter(by_id or by_name or self._waiting), None)
        if found is None:
            raise refused("a message of role `tool` must follow the message that called the tool")
        self._waiting.remove(found)
        return found[1]


def _turn(turn: _Object, calls: _Calls, place: str) -> _Object:
    role, content = turn.get("role"), turn.get("content") or ""
    if not isinstance(role, str) or not isinstance(content, str):
        raise refused(f"`{place}` must have a `role` and a `content`, both strings")
    if turn.get("images"):
        raise refused(f"`{place}.images` cannot be shown to this model; it reads text only")
    message: _Object = {"role": role, "content": content}
    if role == "tool":
        message["tool_call_id"] = calls.resolve(turn.get("tool_call_id"), turn.get("tool_name") or turn.get("name"))
    if turn.get("tool_calls"):
        message["tool_calls"] = _tool_calls(turn["tool_calls"], calls, place)
    return message


def _tool_calls(given: Any, calls: _Calls, place: str) -> list[_Object]:
    try:
        read = msgspec.convert(given, list[_Call])
    except msgspec.ValidationError as error:
        raise refused(f"`{place}.tool_calls`: {error}") from error
    return [
        {
            "id": calls.add(call.function.name, call.id),
            "type": "function",
            "function": {
                "name": call.function.name,
                "arguments": msgspec.json.encode(call.function.arguments).decode(),
            },
        }
        for call in read
    ]
