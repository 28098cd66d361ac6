"""The rows of exports: a call with flat columns, or a conversation in the chat format that TRL and others take."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from leyden_contracts import TextCall, Trajectory, Transition

_TOOL_CALL = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
_MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("tool_calls", pa.list_(_TOOL_CALL)),
        ("tool_call_id", pa.string()),
    ]
)
_HEAD: list[tuple[str, pa.DataType]] = [
    ("run", pa.string()),
    ("group", pa.string()),
    ("episode", pa.string()),
    ("task", pa.string()),
    ("attempt", pa.int64()),
    ("purpose", pa.string()),
    ("reward", pa.float64()),
    ("rewards", pa.string()),
]
CONVERSATIONS = pa.schema([("messages", pa.list_(_MESSAGE)), *_HEAD, ("agent", pa.string()), ("model", pa.string())])
CALLS = pa.schema(
    [
        *_HEAD,
        ("verdict", pa.string()),
        ("output", pa.string()),
        ("calls", pa.int32()),
        ("number", pa.int32()),
        ("role", pa.string()),
        ("policy_version", pa.int32()),
        ("prompt_token_ids", pa.list_(pa.int32())),
        ("response_token_ids", pa.list_(pa.int32())),
        ("response_logprobs", pa.list_(pa.float32())),
        ("signals", pa.string()),
        ("temperature", pa.float64()),
        ("finish_reason", pa.string()),
        ("response_id", pa.string()),
        ("replica", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("agent", pa.string()),
        ("parent", pa.string()),
    ]
)
"""`rewards`, `output` and `signals` are JSON: their shape differs from run to run."""
_PACKED = {"prompt_token_ids": "<i4", "response_token_ids": "<i4", "response_logprobs": "<f4"}


def calls_table(trajectories: Iterable[Trajectory]) -> pa.Table:
    """Return a row a call."""
    pairs = [(trajectory, call) for trajectory in trajectories for call in trajectory.transitions]
    columns = {name: _unpacked([getattr(call, name) for _, call in pairs], packed) for name, packed in _PACKED.items()}
    rows = pa.Table.from_pylist(
        [_call(trajectory, call) for trajectory, call in pairs],
        schema=pa.schema([column for column in CALLS if column.name not in _PACKED]),
    )
    return pa.table([columns[name] if name in columns else rows[name] for name in CALLS.names], schema=CALLS)


def conversations_table(trajectories: Iterable[Trajectory]) -> pa.Table:
    """Return a row a conversation."""
    rows = [row for trajectory in trajectories for row in conversations(trajectory)]
    return pa.Table.from_pylist(rows, schema=CONVERSATIONS)


def conversations(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield the conversations of a trajectory's text calls: of those that extend each other, the longest."""
    told = [(text, _messages(text)) for text in trajectory.texts]
    for place, (text, messages) in enumerate(told):
        if messages and not any(_extends(other, messages, at - place) for at, (_, other) in enumerate(told)):
            head = _head(trajectory)
            yield {"messages": messages, **head, "agent": text.agent, "model": text.model}


def _extends(other: list[Any], messages: list[Any], later: int) -> bool:
    # Of equal ones, the last is kept.
    return other[: len(messages)] == messages and (len(other) > len(messages) or later > 0)


def _head(trajectory: Trajectory) -> dict[str, Any]:
    plain = {name: getattr(trajectory, name) for name, _ in _HEAD if name != "rewards"}
    return {**plain, "rewards": _json(trajectory.rewards)}


def _call(trajectory: Trajectory, call: Transition) -> dict[str, Any]:
    signals = [{"name": one.name, "value": one.value} for one in trajectory.signals if one.call == call.number]
    plain = {name: getattr(call, name) for name in CALLS.names if hasattr(call, name) and name not in _PACKED}
    return {
        **plain,
        **_head(trajectory),
        "verdict": trajectory.verdict,
        "output": _json(trajectory.output),
        "calls": len(trajectory.transitions),
        "signals": _json(signals),
    }


def _unpacked(packed: Sequence[bytes], kind: str) -> pa.Array:
    dtype = np.dtype(kind)
    offsets = np.cumsum([0, *(len(one) // dtype.itemsize for one in packed)], dtype=np.int32)
    values = np.frombuffer(b"".join(packed), dtype)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _messages(text: TextCall) -> list[dict[str, Any]]:
    """Return the conversation of one call, its reply last; empty if it cannot be read."""
    try:
        told = [*json.loads(text.messages), *json.loads(text.reply)]
    except (ValueError, TypeError):
        return []
    if not all(isinstance(message, dict) and message.get("role") for message in told):
        return []
    return [_message(message) for message in told]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the keys that every row has, those that it lacks as None."""
    calls = message.get("tool_calls") or None
    return {
        "role": _clean(message["role"]),
        "content": _content(message.get("content")),
        "tool_calls": [_tool_call(call) for call in calls] if isinstance(calls, list) else None,
        "tool_call_id": _text(message.get("tool_call_id")),
    }


def _content(content: Any) -> str | None:
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return _clean("".join(str(part.get("text", "")) for part in content))
    return _text(content)


def _tool_call(call: Any) -> dict[str, Any]:
    call = call if isinstance(call, dict) else {}
    function = call.get("function") if isinstance(call.get("function"), dict) else call
    named = {"name": _text(function.get("name")), "arguments": _text(function.get("arguments"))}
    return {"id": _text(call.get("id")), "type": "function", "function": named}


def _text(value: Any) -> str | None:
    return value if value is None else _clean(value if isinstance(value, str) else _json(value))


def _clean(text: Any) -> str:
    # JSON can hold half a surrogate pair; UTF-8 cannot.
    return str(text).encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
