"""Requests for fuzzing: anything at all, and valid requests of every protocol with something changed."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

_FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
_TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
_COMMON = {"model": "policy", "temperature": 0.5, "top_p": 0.5, "stream": False}
VALID: tuple[dict[str, Any], ...] = (
    {
        **_COMMON,
        "messages": [
            *_TURNS,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "7"},
        ],
        "tools": [{"type": "function", "function": _FUNCTION}],
        "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        "max_completion_tokens": 5,
        "n": 2,
        "seed": 1,
        "stop": ["x"],
        "logprobs": True,
        "top_logprobs": 2,
        "stream_options": {"include_usage": True},
    },
    {**_COMMON, "prompt": [1, 2], "n": 2, "best_of": 2, "logprobs": 1, "echo": False, "max_tokens": 5, "seed": 1},
    {
        **_COMMON,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "7"},
        ],
        "instructions": "s",
        "tools": [{"type": "function", **_FUNCTION}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}},
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 1,
        "max_output_tokens": 5,
        "metadata": {"a": "b"},
    },
    {
        **_COMMON,
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "7"}]},
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "disabled"},
    },
    {
        "model": "policy",
        "messages": [
            {"role": "user", "content": "a", "images": []},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "tool_name": "f", "content": "7"},
        ],
        "prompt": "a",
        "tools": [{"type": "function", "function": _FUNCTION}],
        "options": {"temperature": 0.5, "num_predict": 5, "seed": 1, "stop": ["x"]},
        "format": {"type": "object"},
        "keep_alive": "5m",
        "think": False,
        "stream": True,
    },
)
"""One request of each protocol, with most of its fields."""

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 1, -1, 2**31, 2**64, 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "text", "function", "auto", "null", "\u0000", "\U0001f600"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "function", "text", "id"]), inner, max_size=3
        )
        | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=8,
)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A valid request with one to three places changed, left out, or added to."""
    request = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, request)
    return json.dumps(request).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid request whose bytes are damaged."""
    body = bytearray(json.dumps(draw(st.sampled_from(VALID))).encode())
    place = draw(st.integers(0, len(body) - 1))
    body[place : place + draw(st.integers(0, 9))] = draw(
        st.binary(max_size=6) | st.sampled_from([b"1e999", b"[" * 2000])
    )
    return bytes(body)


BODIES = changed() | damaged() | ANYTHING.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30)


def _change(draw: st.DrawFn, node: Any) -> None:
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    if not keys:
        return
    key = draw(st.sampled_from(keys))
    if isinstance(node[key], dict | list) and node[key] and draw(st.booleans()):
        _change(draw, node[key])
    elif draw(st.integers(0, 3)):
        node[key] = draw(ANYTHING)
    elif isinstance(node, dict) and draw(st.booleans()):
        node[draw(st.text(max_size=8))] = draw(ANYTHING)
    else:
        del node[key]
