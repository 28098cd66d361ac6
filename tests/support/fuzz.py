"""Requests for fuzzing: anything at all, and valid requests of every protocol with something changed."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
_TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
_COMMON = {"model": "policy", "temperature": 0.5, "top_p": 0.5, "stream": False}
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
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
    "/v1/completions": {
        **_COMMON,
        "prompt": [1, 2],
        "n": 2,
        "best_of": 2,
        "logprobs": 1,
        "echo": False,
        "max_tokens": 5,
        "seed": 1,
    },
    "/v1/responses": {
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
    "/v1/messages": {
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
    "/api/chat": {
        "model": "policy",
        "messages": [
            {"role": "user", "content": "a", "images": []},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "tool_name": "f", "content": "7"},
        ],
        "tools": [{"type": "function", "function": _FUNCTION}],
        "options": {"temperature": 0.5, "num_predict": 5, "seed": 1, "stop": ["x"]},
        "format": {"type": "object"},
        "keep_alive": "5m",
        "think": False,
        "stream": True,
    },
    "/api/generate": {
        "model": "policy",
        "prompt": "a",
        "system": "a",
        "raw": False,
        "options": {"temperature": 0.5, "num_predict": 5, "seed": 1, "stop": ["x"]},
        "format": "json",
        "think": True,
        "stream": True,
    },
}
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


_WRONG = (None, True, 0, -1, 2**70, 1.5, "", "x", [], [0], [None], {}, {"type": "x"}, {"type": []}, {"x": 0})


def bodies(path: str) -> st.SearchStrategy[bytes]:
    """Return bodies for `path`: most of them a valid request of its protocol, or of any if it is not known, changed."""
    valid = st.just(VALID[path]) if path in VALID else st.sampled_from(list(VALID.values()))
    other = st.sampled_from(list(VALID.values()))
    nonsense = ANYTHING.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30)
    return _changed(valid) | _changed(valid) | _changed(other) | _damaged(valid) | nonsense


def wrong(path: str) -> Iterator[bytes]:
    """Yield the valid request of `path` with each of its places in turn missing, or holding each of `_WRONG`."""
    for number in range(len(list(_places(VALID[path])))):
        for value in _WRONG:
            request = copy.deepcopy(VALID[path])
            node, key = list(_places(request))[number]
            node[key] = value
            yield json.dumps(request).encode()
        del node[key]
        yield json.dumps(request).encode()


@st.composite
def _changed(draw: st.DrawFn, valid: st.SearchStrategy[dict]) -> bytes:
    """A valid request with up to three places changed, left out, or added to."""
    request = copy.deepcopy(draw(valid))
    request["model"] = draw(st.sampled_from(["policy", "helper"]))  # trained, and sampled as the agent says
    request["stream"] = draw(st.booleans())
    for _ in range(draw(st.integers(0, 3))):
        node, key = draw(st.sampled_from(list(_places(request))))
        match draw(st.sampled_from(["change", "change", "change", "add", "remove"])):
            case "change":
                node[key] = draw(ANYTHING)
            case "add" if isinstance(node, dict):
                node[draw(st.text(max_size=8))] = draw(ANYTHING)
            case _:
                del node[key]
    return json.dumps(request).encode()


@st.composite
def _damaged(draw: st.DrawFn, valid: st.SearchStrategy[dict]) -> bytes:
    """A valid request whose bytes are damaged."""
    body = bytearray(json.dumps(draw(valid)).encode())
    place = draw(st.integers(0, len(body) - 1))
    wrong = draw(st.binary(max_size=6) | st.sampled_from([b"1e999", b"[" * 2000]))
    body[place : place + draw(st.integers(0, 9))] = wrong
    return bytes(body)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a request: what holds it, and its key there."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])
