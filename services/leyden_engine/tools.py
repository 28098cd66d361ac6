"""Tool calls as Hermes models write them: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

Reads texts as vLLM's parser of the same name does, malformed ones included, so that an agent sees the same calls.
"""

import json
import re
import uuid
from typing import Any

_START = "<tool_call>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
"""The second branch is a call whose end was cut off."""


def parse_tool_calls(text: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the text before the calls (None if empty), and the calls in OpenAI's shape.

    One malformed call makes all of `text` plain content: what cannot be read is shown, not dropped.
    """
    if _START not in text:
        return text, []
    try:
        calls = [_call(closed or cut) for closed, cut in _CALL.findall(text)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text, []
    return text[: text.index(_START)] or None, calls


def _call(body: str) -> dict[str, Any]:
    found = json.loads(body)
    name, arguments = found["name"], found["arguments"]
    if not isinstance(name, str):
        raise TypeError("a tool's name is a string")
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"chatcmpl-tool-{uuid.uuid4().hex}", "type": "function", "function": function}
