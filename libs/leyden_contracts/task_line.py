"""A stored task as one line of JSON: written once for each task of an upload, so made without pydantic where it can.

Every line begins with the task's id, which is read back without parsing the rest.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from json.encoder import encode_basestring as _quoted
from typing import Any

from pydantic_core import from_json

from leyden_contracts.reading import read_task
from leyden_contracts.task import Task

_START = b'{"id":"'
_ID = slice(len(_START), len(_START) + 24)
_FIELDS = frozenset({"input", "expected", "tags"})
# The first is what `content_id` writes: the id must not depend on the way taken.
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_as_given = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def task_line(raw: bytes | Any) -> bytes:
    """Return the stored line, without its end, of the task in `raw`: a line of JSON, or a parsed value.

    Equal to storing `Task.of(read_task(raw))`, but of a tag given twice only the last is looked at. Raises BadTask.
    """
    return _fast_line(raw) or _slow_line(raw)


def line_id(line: bytes) -> str:
    """Return the id of the task in a stored line. Raises ValueError if it is none."""
    if not line.startswith(_START):
        raise ValueError(f"this is no stored task: {line[:40]!r}")
    return line[_ID].decode("ascii")


def _fast_line(raw: bytes | Any) -> bytes | None:
    try:
        value = from_json(raw) if isinstance(raw, bytes) else raw
        return _line(value) if _is_plain(value) else None
    except ValueError:
        # Whatever is wrong, the slow way says it in words.
        return None


def _is_plain(value: Any) -> bool:
    """Say whether `value` is a task beyond doubt."""
    if type(value) is not dict or "input" not in value or not value.keys() <= _FIELDS:
        return False
    tags = value.get("tags")
    if tags is None:
        return "tags" not in value
    return type(tags) is dict and all(type(text) is str for text in tags.values())


def _line(value: Mapping[str, Any]) -> bytes:
    body = {"expected": value.get("expected"), "input": value["input"], "tags": value.get("tags") or {}}
    simple = _simple(body)
    text = simple or _canonical(body)
    task = sha256(text.encode()).hexdigest()[:24]
    if not (simple or all(_is_sorted(field) for field in body.values())):
        text = _as_given(body)
    return b'%b%b",%b' % (_START, task.encode(), text[1:].encode())


def _simple(body: Mapping[str, Any]) -> str | None:
    """Return the canonical text of a body of two scalars and no tags, which most tasks are; None of any other."""
    expected, value = _scalar(body["expected"]), _scalar(body["input"])
    if expected is None or value is None or body["tags"]:
        return None
    return f'{{"expected":{expected},"input":{value},"tags":{{}}}}'


def _scalar(value: Any) -> str | None:
    if type(value) is str:
        return _quoted(value)
    if type(value) is int:
        return repr(value)
    return "null" if value is None else None


def _is_sorted(value: Any) -> bool:
    """Say whether sorting keys changes nothing, as far as one look tells; the agent sees keys in the user's order."""
    if type(value) is dict:
        return len(value) < 2 and all(type(inner) is str for inner in value.values())
    return type(value) is not list


def _slow_line(raw: bytes | Any) -> bytes:
    return _line(Task.of(read_task(raw)).model_dump(mode="json", exclude={"id"}))
