"""OpenAI's SDK and a loop. Run as `opentelemetry-instrument python plain_openai_agent.py QUESTION`."""

import json
import os
import sys

from openai import OpenAI

NUMBER = {"type": "integer"}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    },
}


def add(a: int, b: int) -> int:
    return a + b


def solve(question: str) -> str:
    client, model = OpenAI(), os.environ["OPENAI_MODEL"]
    messages: list = [{"role": "user", "content": question}]
    for _ in range(3):
        reply = client.chat.completions.create(model=model, messages=messages, tools=[TOOL]).choices[0].message
        if not reply.tool_calls:
            return reply.content or ""
        messages.append(reply)
        for call in reply.tool_calls:
            result = add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
    return ""


if __name__ == "__main__":
    print(solve(sys.argv[-1]))
