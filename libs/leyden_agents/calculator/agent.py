"""Answer arithmetic questions with a calculator: an ordinary agent on the `openai` SDK.

It reads OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, like any other.
"""

import json
import os
import re
from typing import Any

from openai import DefaultHttpx2Client, OpenAI

MAX_CALLS = 3

CALCULATOR: Any = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Add or subtract two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "For instance 37+58"}},
            "required": ["expression"],
        },
    },
}


# Loading the certificates takes longer than a whole conversation with a small model: once is enough.
HTTP = DefaultHttpx2Client()


def calculate(arguments: str) -> str:
    """Run the tool on its JSON arguments; return the result, or `error` for what it cannot compute."""
    try:
        expression = json.loads(arguments)["expression"]
        left, sign, right = re.fullmatch(r"(\d{1,9})([+-])(\d{1,9})", expression).groups()  # type: ignore[union-attr]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "error"
    return str(int(left) + int(right) if sign == "+" else int(left) - int(right))


def answer(task: dict[str, str]) -> str:
    """Return the model's last words on `task["question"]`, after at most `MAX_CALLS` calls."""
    client = OpenAI(http_client=HTTP)
    messages: list[Any] = [{"role": "user", "content": task["question"]}]
    text = ""
    for _ in range(MAX_CALLS):
        reply = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages, tools=[CALCULATOR])
        message = reply.choices[0].message
        text = message.content or ""
        if not message.tool_calls:
            break
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = calculate(call.function.arguments) if call.type == "function" else "error"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return text
